// The threads of `pool.hpp`. They are started when first needed and wait: a while spinning, then asleep.
#include "pool.hpp"

#include <pthread.h>

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
    void run(int num_threads, const std::function<void(int, int)>& work) {
        std::unique_lock<std::mutex> sole(in_use_, std::try_to_lock);
        if (num_threads <= 1 || !sole.owns_lock() || !has(num_threads - 1)) return work(0, 1);
        {
            const std::lock_guard<std::mutex> guard(mutex_);
            work_ = &work;
            num_threads_ = num_threads;
            unfinished_.store(num_threads - 1, std::memory_order_relaxed);
            turn_.fetch_add(1, std::memory_order_release);
        }
        wake_.notify_all();
        work(0, num_threads);
        for (int spins = 0; unfinished_.load(std::memory_order_acquire) > 0; ++spins)
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
            }
            if (number >= num_threads) continue;
            (*work)(number, num_threads);
            unfinished_.fetch_sub(1, std::memory_order_release);
        }
    }

    std::mutex in_use_, mutex_;
    std::condition_variable wake_;
    std::atomic<long> turn_{0};
    std::atomic<int> unfinished_{0};
    const std::function<void(int, int)>* work_ = nullptr;
    int num_threads_ = 0, num_workers_ = 0;
};

// Never destroyed: threads may still wait in it while the process ends. A forked process has none of its threads, so it
// starts with a new pool.
Pool* pool = [] {
    pthread_atfork(nullptr, nullptr, [] { pool = new Pool; });
    return new Pool;
}();

}  // namespace

void in_parallel(int num_threads, const std::function<void(int, int)>& work) { pool->run(num_threads, work); }

}  // namespace elmokit
