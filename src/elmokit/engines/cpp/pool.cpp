// The threads of `pool.hpp`. They are started when first needed and wait for work.
#include "pool.hpp"

#include <pthread.h>

#include <algorithm>
#include <system_error>
#include <thread>

namespace elmokit {
namespace {

class Pool {
   public:
    // With `needs_all` every thread takes part; otherwise those that have not begun when the caller's is done do not.
    void run(int num_threads, bool needs_all, const std::function<void(int, int)>& work) {
        std::unique_lock<std::mutex> sole(in_use_, std::try_to_lock);
        if (num_threads <= 1 || !sole.owns_lock() || !has(num_threads - 1)) return work(0, 1);
        const long num_done = num_done_.value();
        {
            const std::lock_guard<std::mutex> guard(mutex_);
            work_ = &work;
            num_threads_ = num_threads;
            num_begun_ = 0;
            ++job_;
        }
        num_jobs_.increase();
        work(0, num_threads);
        int expected = num_threads - 1;
        if (!needs_all) {
            const std::lock_guard<std::mutex> guard(mutex_);
            num_threads_ = 0;
            expected = num_begun_;
        }
        num_done_.wait_until(num_done + expected);
    }

   private:
    bool has(int count) {
        try {
            while (num_workers_ < count) {
                std::thread(&Pool::serve, this, num_workers_ + 1, num_jobs_.value()).detach();
                ++num_workers_;
            }
        } catch (const std::system_error&) {  // the system gives no more threads
            return false;
        }
        return true;
    }

    void serve(int number, long seen) {
        for (;;) {
            num_jobs_.wait_until(seen + 1);
            const std::function<void(int, int)>* work;
            int num_threads;
            {
                const std::lock_guard<std::mutex> guard(mutex_);
                seen = job_;
                work = work_;
                num_threads = num_threads_;
                if (number >= num_threads) continue;
                ++num_begun_;
            }
            (*work)(number, num_threads);
            num_done_.increase();
        }
    }

    std::mutex in_use_, mutex_;
    Counter num_jobs_, num_done_;
    // The last job, which `mutex_` guards. It may be one that `num_jobs_` does not count yet: a worker that comes late
    // for the one before then takes this one, and not again when it is counted.
    long job_ = 0;
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
