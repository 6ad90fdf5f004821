// Vectors of float32 as wide as the machine's registers, and the two non-linearities of an LSTM on them.
//
// The vectors are the compiler's own (`vector_size`), so the same lines become AVX-512, AVX2, SSE or NEON. Everything
// here keeps a NaN a NaN.
#pragma once

#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#define INLINE inline __attribute__((always_inline))

namespace elmokit {

#if defined(__AVX512F__)
constexpr int LANES = 16;
#elif defined(__AVX__)
constexpr int LANES = 8;
#else
constexpr int LANES = 4;
#endif

// A matmul is computed in tiles of ROWS rows by VECTORS vectors of columns: as many sums as registers can hold.
constexpr int VECTORS = 4;
constexpr int PANEL = VECTORS * LANES;
#if defined(__AVX512F__)
constexpr int ROWS = 7;  // with the columns, all 32: the other factor comes from memory
#elif defined(__aarch64__)
constexpr int ROWS = 6;
#else
constexpr int ROWS = 3;
#endif

typedef float Floats __attribute__((vector_size(LANES * 4)));
typedef int32_t Ints __attribute__((vector_size(LANES * 4)));

INLINE Floats load(const float* from) {
    Floats values;
    std::memcpy(&values, from, sizeof values);
    return values;
}

INLINE void store(float* to, Floats values) { std::memcpy(to, &values, sizeof values); }

// A number of 16 bits (IEEE binary16), read as the float32 that it is.
struct Half {
    uint16_t bits;
};

#if defined(__AVX512F__) && defined(__F16C__)
constexpr bool READS_HALVES = true;
INLINE Floats load(const Half* from) { return (Floats)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i*)from)); }
INLINE Half halved(float value) { return {static_cast<uint16_t>(_cvtss_sh(value, 0))}; }
#elif defined(__F16C__)
constexpr bool READS_HALVES = true;
INLINE Floats load(const Half* from) { return (Floats)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i*)from)); }
INLINE Half halved(float value) { return {static_cast<uint16_t>(_cvtss_sh(value, 0))}; }
#else
constexpr bool READS_HALVES = false;  // nobody may ask for it
INLINE Floats load(const Half*) { return Floats{}; }
INLINE Half halved(float) { return {}; }
#endif

INLINE Floats all(float value) { return value - Floats{}; }

#if defined(__AVX512F__)
INLINE Floats smaller(Floats bound, Floats values) { return (Floats)_mm512_min_ps((__m512)bound, (__m512)values); }
INLINE Floats larger(Floats bound, Floats values) { return (Floats)_mm512_max_ps((__m512)bound, (__m512)values); }
// A first guess of 14 bits and one step of Newton's: half the time of a division, the same error within 1 ulp.
INLINE Floats reciprocal(Floats x) {
    const Floats guess = (Floats)_mm512_rcp14_ps((__m512)x);
    return guess + guess * (1.0f - x * guess);
}
#else
INLINE Floats smaller(Floats bound, Floats values) { return bound < values ? bound : values; }
INLINE Floats larger(Floats bound, Floats values) { return bound > values ? bound : values; }
INLINE Floats reciprocal(Floats x) { return 1.0f / x; }
#endif

INLINE Floats clamped(Floats values, Floats bound) { return larger(-bound, smaller(bound, values)); }

// e^x for x within ±87, error below 2 ulp: x = n ln 2 + r, the Taylor polynomial of e^r, n added to the exponent.
INLINE Floats exponential(Floats x) {
    const Floats magic = all(12582912.0f);  // 1.5 * 2^23: adding it rounds to a whole number
    const Floats shifted = x * 1.44269504088896341f + magic;
    const Floats n = shifted - magic;
    const Floats r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
    Floats p = all(1.9875691500e-4f);
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * (r * r) + r + 1.0f;
    return (Floats)((Ints)p + ((Ints)shifted << 23));
}

INLINE Floats sigmoid(Floats x) { return reciprocal(1.0f + exponential(clamped(-x, all(87.0f)))); }

INLINE Floats hyperbolic_tangent(Floats x) {
    const Floats square = x * x;
    Floats p = all(-5.70498872745e-3f);
    p = p * square + 2.06390887954e-2f;
    p = p * square - 5.37397155531e-2f;
    p = p * square + 1.33314422036e-1f;
    p = p * square - 3.33332819422e-1f;
    p = p * square * x + x;  // near 0, where the quotient below would lose digits
    const Floats far = 1.0f - 2.0f * reciprocal(exponential(clamped(x + x, all(40.0f))) + 1.0f);
    return square < 0.390625f ? p : far;
}

// sigmoid(x) * tanh(y) with one division; the error is below 3e-7, absolutely.
INLINE Floats sigmoid_times_tanh(Floats x, Floats y) {
    const Floats a = exponential(clamped(-x, all(40.0f))), b = exponential(clamped(y + y, all(40.0f)));
    return (b - 1.0f) * reciprocal((1.0f + a) * (b + 1.0f));
}

}  // namespace elmokit
