// Threads that wait for work, and a barrier for those that work together.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <utility>

namespace elmokit {

// A number that grows, and threads that wait for that. On free cores nothing is faster than to spin. Where other
// processes have the cores, waits are as long as the time these are given, and whoever spins takes it from the very
// thread it waits for. So a thread spins if the last wait was short; otherwise, and if it takes too long, it sleeps.
class Counter {
   public:
    long value() const { return value_.load(std::memory_order_acquire); }

    void increase() {
        value_.fetch_add(1);
        if (num_asleep_.load() == 0) return;
        const std::lock_guard<std::mutex> guard(mutex_);  // whoever counts as asleep has seen the old value and sleeps
        wake_.notify_all();
    }

    void wait_until(long least) {
        if (value() >= least) return;
        const auto start = std::chrono::steady_clock::now();
        if (was_short_.load(std::memory_order_relaxed))
            for (int spins = 0; spins < SPINS; ++spins) {
                pause();
                if (value() >= least) return;
            }
        std::unique_lock<std::mutex> guard(mutex_);
        num_asleep_.fetch_add(1);
        wake_.wait(guard, [&] { return value_.load() >= least; });
        num_asleep_.fetch_sub(1);
        was_short_.store(std::chrono::steady_clock::now() - start < SHORT, std::memory_order_relaxed);
    }

   private:
    // More than the time between two layers, less than the time a busy system lets a thread run.
    static constexpr std::chrono::microseconds SHORT{500};
    static constexpr int SPINS = 20000;  // about as long

    static void pause() {
#if defined(__x86_64__)
        __builtin_ia32_pause();
#endif
    }

    std::atomic<long> value_{0};
    std::atomic<int> num_asleep_{0};
    std::atomic<bool> was_short_{true};
    std::mutex mutex_;
    std::condition_variable wake_;
};

// Waits until all have come.
class Barrier {
   public:
    explicit Barrier(int size) : size_(size) {}

    void wait() {
        if (size_ == 1) return;
        const long turn = turn_.value();
        if (arrived_.fetch_add(1, std::memory_order_acq_rel) == size_ - 1) {
            arrived_.store(0, std::memory_order_relaxed);
            turn_.increase();
        } else {
            turn_.wait_until(turn + 1);
        }
    }

   private:
    const int size_;
    std::atomic<int> arrived_{0};
    Counter turn_;
};

// Runs work(thread, num_threads) on every thread, the caller's among them, and returns when all are done. num_threads
// is 1 if the threads are taken by another caller or cannot be had. For work whose threads meet at barriers.
void in_parallel(int num_threads, const std::function<void(int, int)>& work);

// Runs work(task) for every task below `num_tasks`, each on whatever thread is free; the caller's is one of them. Where
// other processes keep the cores busy, a thread that comes late is not waited for.
void for_each_task(long num_tasks, int num_threads, const std::function<void(long)>& work);

// The share [first, second) of `count` things that belongs to a thread or task.
inline std::pair<long, long> share(long count, long number, long num_shares) {
    return {count * number / num_shares, count * (number + 1) / num_shares};
}

}  // namespace elmokit
