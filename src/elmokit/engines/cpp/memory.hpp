// Memory that a thread keeps from call to call, and rows of activations as the matmuls take them.
#pragma once

#include <cstdlib>
#include <new>

#include "panels.hpp"

namespace elmokit {

// Grows as needed; what it held is lost when it grows. Aligned to a cache line.
class Buffer {
   public:
    ~Buffer() { std::free(memory_); }

    void* at_least(long bytes) {
        if (bytes > size_) {
            std::free(memory_);
            size_ = (bytes + 63) / 64 * 64;
            memory_ = std::aligned_alloc(64, size_);
            if (memory_ == nullptr) throw std::bad_alloc();
        }
        return memory_;
    }

    void keep_at_most(long bytes) {
        if (size_ <= bytes) return;
        std::free(memory_);
        memory_ = nullptr;
        size_ = 0;
    }

   private:
    void* memory_ = nullptr;
    long size_ = 0;
};

// Rows as they are, or quantised into a buffer, with one scale per row.
template <class Kind>
struct Rows;

template <class Stored>
struct Rows<Exact<Stored>> {
    const float* values;
    long stride;
    const float* scales = nullptr;

    Rows(const float* rows, long inner, long, Buffer&) : values(rows), stride(inner) {}
};

template <>
struct Rows<Quantised> {
    const Quantised::Value* values;
    long stride;
    const float* scales;

    Rows(const float* rows, long inner, long num_rows, Buffer& buffer) : stride(Quantised::stride(inner)) {
        float* scales = static_cast<float*>(buffer.at_least(num_rows * (4 + stride * sizeof(Quantised::Value))));
        auto* values = reinterpret_cast<Quantised::Value*>(scales + num_rows);
        for (long row = 0; row < num_rows; ++row)
            scales[row] = Quantised::quantise(rows + row * inner, inner, values + row * stride);
        this->values = values;
        this->scales = scales;
    }
};

}  // namespace elmokit
