// The threads of `pool.hpp`. They are started when first needed and wait: a while spinning, then asleep.
#include "pool.hpp"

#include <pthread.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

namespace elmokit {
namespace {

constexpr int SPINS = 20000;  // some tens of microseconds: the time between two layers

class Pool {
   public:
    // With `needs_all` every thread takes part; otherwise those that have not begun when the caller's is done do not.
    void run(int num_threads, bool needs_all, const std::function<void(int, int)>& work) {
        std::unique_lock<std::mutex> sole(in_use_, std::try_to_lock);
        if (num_threads <= 1 || !sole.owns_lock() || !has(num_threads - 1)) return work(0, 1);
        {
            const std::lock_guard<std::mutex> guard(mutex_);
            work_ = &work;
            num_threads_ = num_threads;
            num_begun_ = 0;
            num_done_.store(0, std::memory_order_relaxed);
            turn_.fetch_add(1, std::memory_order_release);
        }
        wake_.notify_all();
        work(0, num_threads);
        int expected = num_threads - 1;
        if (!needs_all) {
            const std::lock_guard<std::mutex> guard(mutex_);
            num_threads_ = 0;
            expected = num_begun_;
        }
        for (int spins = 0; num_done_.load(std::memory_order_acquire) < expected; ++spins)
            spins < SPINS ? pause() : static_cast<void>(sched_yield());
    }

   private:
    bool has(int count) {
        try {
            while (num_workers_ < count) {
                std::thread(&Pool::serve, this, num_workers_ + 1, turn_.load()).detach();
                ++num_workers_;
            }
        } catch (const std::system_error&) {  // the system gives no more threads
            return false;
        }
        return true;
    }

    void serve(int number, long seen) {
        for (;;) {
            for (int spins = 0; turn_.load(std::memory_order_acquire) == seen && spins < SPINS; ++spins) pause();
            const std::function<void(int, int)>* work;
            int num_threads;
            {
                std::unique_lock<std::mutex> guard(mutex_);
                wake_.wait(guard, [&] { return turn_.load(std::memory_order_relaxed) != seen; });
                seen = turn_.load(std::memory_order_relaxed);
                work = work_;
                num_threads = num_threads_;
                if (number >= num_threads) continue;
                ++num_begun_;
            }
            (*work)(number, num_threads);
            num_done_.fetch_add(1, std::memory_order_release);
        }
    }

    std::mutex in_use_, mutex_;
    std::condition_variable wake_;
    std::atomic<long> turn_{0};
    std::atomic<int> num_done_{0};
    const std::function<void(int, int)>* work_ = nullptr;
    int num_threads_ = 0, num_begun_ = 0, num_workers_ = 0;
};

// Never destroyed: threads may still wait in it while the process ends. A forked process has none of its threads, so it
// starts with a new pool.
Pool* pool = [] {
    pthread_atfork(nullptr, nullptr, [] { pool = new Pool; });
    return new Pool;
}();

}  // namespace

void in_parallel(int num_threads, const std::function<void(int, int)>& work) { pool->run(num_threads, true, work); }

void for_each_task(long num_tasks, int num_threads, const std::function<void(long)>& work) {
    std::atomic<long> next{0};
    pool->run(static_cast<int>(std::min<long>(num_threads, num_tasks)), false, [&](int, int) {
        for (long task = next++; task < num_tasks; task = next++) work(task);
    });
}

}  // namespace elmokit
