// Threads that wait for work, and a barrier for those that work together.
#pragma once

#include <sched.h>

#include <atomic>
#include <functional>
#include <utility>

namespace elmokit {

inline void pause() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

// Spins until all have come; gives the core away if that takes long, since there may be more threads than cores.
class Barrier {
   public:
    explicit Barrier(int size) : size_(size) {}

    void wait() {
        if (size_ == 1) return;
        const int turn = turn_.load(std::memory_order_acquire);
        if (arrived_.fetch_add(1, std::memory_order_acq_rel) == size_ - 1) {
            arrived_.store(0, std::memory_order_relaxed);
            turn_.store(turn + 1, std::memory_order_release);
            return;
        }
        for (int spins = 0; turn_.load(std::memory_order_acquire) == turn; ++spins)
            spins < 4096 ? pause() : static_cast<void>(sched_yield());
    }

   private:
    const int size_;
    std::atomic<int> arrived_{0}, turn_{0};
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
