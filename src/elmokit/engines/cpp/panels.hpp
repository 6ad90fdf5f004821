// A weight matrix cut into panels of PANEL columns, and matmuls of rows with a panel, in float32 and in int8.
//
// A panel holds its columns step by step of the inner dimension, so a matmul reads it once, from its first byte to its
// last. Where the columns belong to several groups (the four gates of a cell, the two linear maps of a highway), a panel
// holds the same columns of each group: what must be combined is then computed together.
//
// Weights that lose nothing by it, such as those of a model that was saved in float16, lie there as float16: half of the
// bytes to fetch, the same sums to the last bit.
//
// int8: a column of weights is q * scale with whole q within ±127, and so is a row of activations. Sums are exact 32-bit
// integers, the same on every machine.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "simd.hpp"

namespace elmokit {

// Shape of a matrix in panels.
struct Shape {
    long inner, columns, groups;  // columns: of one group

    long columns_a_panel() const { return PANEL / groups; }
    long num_panels() const { return (columns + columns_a_panel() - 1) / columns_a_panel(); }
    long num_places() const { return num_panels() * PANEL; }
    // Column of the matrix that lies at a place of the panels; -1 if none does.
    long column_at(long place) const {
        const long group = place % PANEL / columns_a_panel();
        const long within = place / PANEL * columns_a_panel() + place % columns_a_panel();
        return within < columns ? group * columns + within : -1;
    }
};

// A matrix as it arrives: element (k, n) lies at values[k * down + n * across].
struct Matrix {
    const float* values;
    long down, across;

    float at(long k, long n) const { return values[k * down + n * across]; }
};

// Forces the compiler to take what follows from memory again. An AVX-512 multiplication can spread a number from memory by
// itself; spread once for all columns, the number costs an instruction of those that limit a matmul with a row or two.
INLINE void read_again() {
#if defined(__AVX512F__)
    asm volatile("" ::: "memory");
#endif
}

INLINE void put(float value, float* to) { *to = value; }
INLINE void put(float value, Half* to) { *to = halved(value); }

// Float32, stored as such or as halves. Memory: weights [panel][inner][PANEL], bias [place].
template <class Stored>
struct Exact {
    using Value = float;  // of an activation
    static constexpr bool QUANTISES = false;
    // Steps of the inner dimension that are summed at a time: their panel stays in the cache of a core, and many short sums
    // lose less to rounding than a long one.
    static constexpr long CHUNK = 256;

    Shape shape;
    const Stored* weights;
    const float* bias;

    static long bytes(Shape shape) { return shape.num_places() * (shape.inner * sizeof(Stored) + 4); }
    static long stride(long inner) { return inner; }

    Exact(Shape shape, const void* memory)
        : shape(shape),
          weights(static_cast<const Stored*>(memory)),
          bias(reinterpret_cast<const float*>(weights + shape.inner * shape.num_places())) {}

    static void pack(Shape shape, Matrix matrix, const float* bias, void* memory) {
        Stored* to = static_cast<Stored*>(memory);
        for (long panel = 0; panel < shape.num_panels(); ++panel) {
            long columns[PANEL];
            for (long place = 0; place < PANEL; ++place) columns[place] = shape.column_at(panel * PANEL + place);
            for (long k = 0; k < shape.inner; ++k)
                for (const long column : columns) put(column < 0 ? 0.0f : matrix.at(k, column), to++);
        }
        for (long place = 0; place < shape.num_places(); ++place) {
            const long column = shape.column_at(place);
            reinterpret_cast<float*>(to)[place] = column < 0 || bias == nullptr ? 0.0f : bias[column];
        }
    }

    // Adds the products over steps [from, to) of the inner dimension to `rows` rows of `sums`; overwrites them if from == 0.
    template <int rows>
    static __attribute__((noinline)) void add(
        const Exact& self, long panel, const float* activations, long stride, const float*, long from, long to,
        float* sums) {
        Floats s[rows][VECTORS] = {};
        const Stored* weights = self.weights + (panel * self.shape.inner + from) * PANEL;
        for (long k = from; k < to; ++k, weights += PANEL) {
            Floats columns[VECTORS];
#pragma GCC unroll 4
            for (int v = 0; v < VECTORS; ++v) columns[v] = load(weights + v * LANES);
#pragma GCC unroll 7
            for (int r = 0; r < rows; ++r)
#pragma GCC unroll 4
                for (int v = 0; v < VECTORS; ++v) {
                    if (rows <= 2) read_again();
                    s[r][v] += all(activations[r * stride + k]) * columns[v];
                }
        }
        for (int r = 0; r < rows; ++r)
            for (int v = 0; v < VECTORS; ++v) {
                float* place = sums + r * PANEL + v * LANES;
                store(place, from == 0 ? s[r][v] : s[r][v] + load(place));
            }
    }
};

// int8. Memory: weights [panel][inner / GROUP][PANEL][GROUP], then by place: scale, bias, correction.
//
// With VNNI four multiplications are one instruction, unsigned by signed: activations are shifted by 128, and the correction
// takes 128 * (sum of the column) away again. Without it two 16-bit multiplications are one.
struct Quantised {
    static constexpr bool QUANTISES = true;
    static constexpr long CHUNK = std::numeric_limits<long>::max();
#if defined(__AVX512VNNI__) || defined(__AVXVNNI__)
    using Value = uint8_t;
    static constexpr long GROUP = 4;
    static constexpr int SHIFT = 128;
#else
    using Value = int16_t;
    static constexpr long GROUP = 2;
    static constexpr int SHIFT = 0;
#endif

    Shape shape;
    const int8_t* weights;
    const float *scales, *bias;
    const int32_t* corrections;

    static long stride(long inner) { return (inner + GROUP - 1) / GROUP * GROUP; }
    static long bytes(Shape shape) { return shape.num_places() * (stride(shape.inner) + 12); }

    Quantised(Shape shape, const void* memory)
        : shape(shape),
          weights(static_cast<const int8_t*>(memory)),
          scales(reinterpret_cast<const float*>(weights + stride(shape.inner) * shape.num_places())),
          bias(scales + shape.num_places()),
          corrections(reinterpret_cast<const int32_t*>(bias + shape.num_places())) {}

    static void pack(Shape shape, Matrix matrix, const float* bias, void* memory) {
        const Quantised self(shape, memory);
        const long inner = stride(shape.inner);
        for (long place = 0; place < shape.num_places(); ++place) {
            int8_t* to = const_cast<int8_t*>(self.weights) + place / PANEL * inner * PANEL + place % PANEL * GROUP;
            const long column = shape.column_at(place);
            float largest = 0;
            for (long k = 0; column >= 0 && k < shape.inner; ++k)
                largest = std::max(largest, std::fabs(matrix.at(k, column)));
            const float factor = largest > 0 ? 127.0f / largest : 0.0f;
            int32_t sum = 0;
            for (long k = 0; k < inner; ++k) {
                const float value = column < 0 || k >= shape.inner ? 0.0f : matrix.at(k, column);
                const int32_t q = static_cast<int32_t>(std::nearbyint(value * factor));
                to[k / GROUP * PANEL * GROUP + k % GROUP] = static_cast<int8_t>(q);
                sum += q;
            }
            const_cast<float*>(self.scales)[place] = largest / 127.0f;
            const_cast<float*>(self.bias)[place] = column < 0 || bias == nullptr ? 0.0f : bias[column];
            const_cast<int32_t*>(self.corrections)[place] = -SHIFT * sum;
        }
    }

    // One row of activations as whole numbers; returns the scale: NaN if a value is not finite, so the row becomes NaN.
    static float quantise(const float* row, long inner, Value* to) {
        int32_t bits = 0;  // of the largest magnitude; floats without sign are ordered like their bits, NaN on top
        for (long k = 0; k < inner; ++k) {
            int32_t value;
            std::memcpy(&value, row + k, 4);
            bits = std::max(bits, value & 0x7fffffff);
        }
        float largest;
        std::memcpy(&largest, &bits, 4);
        const bool finite = bits < 0x7f800000;
        const float factor = finite && largest > 0 ? 127.0f / largest : 0.0f;
        if (finite)
            for (long k = 0; k < inner; ++k) {
                // Adding 1.5 * 2^23 rounds half to even and leaves the whole number in the low bits.
                const float shifted = row[k] * factor + 12582912.0f;
                int32_t q;
                std::memcpy(&q, &shifted, 4);
                to[k] = static_cast<Value>(q - 0x4b400000 + SHIFT);
            }
        for (long k = inner; k < stride(inner); ++k) to[k] = 0;
        return finite ? largest / 127.0f : std::numeric_limits<float>::quiet_NaN();
    }

    template <int rows>
    static __attribute__((noinline)) void add(
        const Quantised& self, long panel, const Value* activations, long stride, const float* row_scales, long,
        long to, float* results) {
        Ints s[rows][VECTORS];
        for (int v = 0; v < VECTORS; ++v) {
            Ints correction;
            std::memcpy(&correction, self.corrections + panel * PANEL + v * LANES, sizeof correction);
            for (int r = 0; r < rows; ++r) s[r][v] = correction;
        }
        const long padded = Quantised::stride(to);
        const int8_t* weights = self.weights + panel * padded * PANEL;
        for (long k = 0; k < padded; k += GROUP, weights += PANEL * GROUP) {
            Column columns[VECTORS];
#pragma GCC unroll 4
            for (int v = 0; v < VECTORS; ++v) columns[v] = column_at(weights + v * LANES * GROUP);
#pragma GCC unroll 7
            for (int r = 0; r < rows; ++r) {
                int32_t group;
                std::memcpy(&group, activations + r * stride + k, 4);
#pragma GCC unroll 4
                for (int v = 0; v < VECTORS; ++v) s[r][v] = dot(s[r][v], group, columns[v]);
            }
        }
        for (int v = 0; v < VECTORS; ++v) {
            const Floats scale = load(self.scales + panel * PANEL + v * LANES);
            for (int r = 0; r < rows; ++r)
                store(results + r * PANEL + v * LANES, __builtin_convertvector(s[r][v], Floats) * (scale * row_scales[r]));
        }
    }

   private:
#if defined(__AVX512VNNI__)
    using Column = __m512i;
    static INLINE Column column_at(const int8_t* from) { return _mm512_loadu_si512(from); }
    static INLINE Ints dot(Ints sum, int32_t group, Column column) {
        return (Ints)_mm512_dpbusd_epi32((__m512i)sum, _mm512_set1_epi32(group), column);
    }
#elif defined(__AVXVNNI__)
    using Column = __m256i;
    static INLINE Column column_at(const int8_t* from) { return _mm256_loadu_si256((const __m256i*)from); }
    static INLINE Ints dot(Ints sum, int32_t group, Column column) {
        return (Ints)_mm256_dpbusd_avx_epi32((__m256i)sum, _mm256_set1_epi32(group), column);
    }
#elif defined(__AVX512BW__)
    using Column = __m512i;
    static INLINE Column column_at(const int8_t* from) {
        return _mm512_cvtepi8_epi16(_mm256_loadu_si256((const __m256i*)from));
    }
    static INLINE Ints dot(Ints sum, int32_t group, Column column) {
        return sum + (Ints)_mm512_madd_epi16(_mm512_set1_epi32(group), column);
    }
#elif defined(__AVX2__) && !defined(__AVX512F__)
    using Column = __m256i;
    static INLINE Column column_at(const int8_t* from) {
        return _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i*)from));
    }
    static INLINE Ints dot(Ints sum, int32_t group, Column column) {
        return sum + (Ints)_mm256_madd_epi16(_mm256_set1_epi32(group), column);
    }
#else
    struct Column {
        Ints first, second;
    };
    static INLINE Column column_at(const int8_t* from) {
        Column column;
        for (int lane = 0; lane < LANES; ++lane) {
            column.first[lane] = from[2 * lane];
            column.second[lane] = from[2 * lane + 1];
        }
        return column;
    }
    static INLINE Ints dot(Ints sum, int32_t group, const Column& column) {
        return sum + column.first * static_cast<int16_t>(group) + column.second * (group >> 16);
    }
#endif
};

// How weights are stored, as Python numbers it; `use` is called with a value of that kind as its type.
enum Storage { FLOATS, INT8, HALVES };

template <class Kind>
struct Of {
    using Type = Kind;
};

template <class Use>
auto with_storage(int storage, const Use& use) {
    if (storage == INT8) return use(Of<Quantised>{});
    if (storage == HALVES) return use(Of<Exact<Half>>{});
    return use(Of<Exact<float>>{});
}

// Products of rows with one panel; `use(row, values)` takes PANEL values of each row, bias not added.
//
// A long panel is taken chunk by chunk for all rows, so that it is fetched once; a row's sums do not depend on the others.
template <class Kind, class Use>
INLINE void multiply(
    const Kind& weights, long panel, const typename Kind::Value* activations, long stride, const float* row_scales,
    long num_rows, const Use& use) {
    using Add = void (*)(
        const Kind&, long, const typename Kind::Value*, long, const float*, long, long, float*);
    static constexpr Add adders[] = {
        nullptr, Kind::template add<1>, Kind::template add<2>, Kind::template add<3>,
#if defined(__AVX512F__) || defined(__aarch64__)
        Kind::template add<4>, Kind::template add<5>, Kind::template add<6>,
#endif
#if defined(__AVX512F__)
        Kind::template add<7>,
#endif
    };
    static_assert(sizeof adders / sizeof *adders == ROWS + 1, "one for each number of rows");
    const long inner = weights.shape.inner;
    const long chunk = std::min(inner, Kind::CHUNK);
    const long num_tiles = (num_rows + ROWS - 1) / ROWS;  // all about as high: a low one costs nearly as much
    alignas(64) float one_tile[ROWS * PANEL];
    thread_local std::vector<float> all_rows;
    if (chunk < inner) all_rows.resize(num_rows * PANEL);
    for (long from = 0; from == 0 || from < inner; from += chunk) {
        const long to = std::min(inner, from + chunk);
        for (long tile = 0, row = 0; tile < num_tiles; ++tile) {
            const long rows = num_rows * (tile + 1) / num_tiles - row;
            float* sums = chunk < inner ? all_rows.data() + row * PANEL : one_tile;
            const float* scales = Kind::QUANTISES ? row_scales + row : nullptr;
            adders[rows](weights, panel, activations + row * stride, stride, scales, from, to, sums);
            if (to == inner)
                for (long r = 0; r < rows; ++r) use(row + r, sums + r * PANEL);
            row += rows;
        }
    }
}

}  // namespace elmokit
