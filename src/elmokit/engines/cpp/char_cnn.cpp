// Words encoded in one call: convolutions over their characters and the maximum, as sums of table rows, and the maps
// behind them (`linear.hpp`).
//
// A filter of width w sees w characters; what character s adds at offset k is a vector that can be computed once for all
// texts. So a window is w rows added up: no multiplications, sixteen times less arithmetic than the convolution. Words end in
// padding; windows of padding alone are all the same, so each word is read up to the first of them.
//
// A table lies as [block of channels][offset][symbol][PANEL], so that what a block needs stays in the cache while many
// words pass; behind it lies the bias, padded like the channels. Every word is computed by the same steps whatever words
// stand beside it, so it always has the same bits.
#include <algorithm>
#include <limits>
#include <vector>

#include "linear.hpp"
#include "memory.hpp"
#include "pool.hpp"
#include "simd.hpp"

namespace elmokit {
namespace {

constexpr long WORDS_AT_A_TIME = 256;  // pass over a block of the table before the next is taken
constexpr long TASKS_PER_THREAD = 4;  // so that a thread that wakes late still finds something to do
constexpr long KEPT_BYTES = 32 << 20;  // of the features

// One filter, as Python hands it over.
struct Filter {
    const float* table;  // and the bias behind it
    long width, channels;
};

// The last window that can differ from those before it; padding is what the word's last column holds.
long last_window(const int32_t* ids, long columns, long width) {
    long used = columns;
    while (used > 0 && ids[used - 1] == ids[columns - 1]) --used;
    return std::min(columns - width, used);
}

// The largest sum of each channel of a block over the windows 0 to last. A NaN stays one.
INLINE void pool_block(const float* table, long symbols, long width, const int32_t* ids, long last, Floats* best) {
    for (int v = 0; v < VECTORS; ++v) best[v] = all(-std::numeric_limits<float>::infinity());
    for (long place = 0; place <= last; ++place) {
        Floats sums[VECTORS] = {};
        for (long offset = 0; offset < width; ++offset) {
            const float* row = table + (offset * symbols + ids[place + offset]) * PANEL;
#pragma GCC unroll 4
            for (int v = 0; v < VECTORS; ++v) sums[v] += load(row + v * LANES);
        }
#pragma GCC unroll 4
        for (int v = 0; v < VECTORS; ++v)
            best[v] = (sums[v] > best[v]) | (sums[v] != sums[v]) ? sums[v] : best[v];
    }
}

void pool_words(
    const Filter* filters, long num_filters, long symbols, const int32_t* ids, long words, long columns, long features,
    bool rectifies, float* outputs) {
    std::vector<long> last(words);
    for (const Filter* end = filters + num_filters; filters < end; outputs += filters++->channels) {
        const Filter& filter = *filters;
        const float* biases = filter.table + (filter.channels + PANEL - 1) / PANEL * PANEL * filter.width * symbols;
        for (long word = 0; word < words; ++word)
            last[word] = last_window(ids + word * columns, columns, filter.width);
        for (long start = 0; start < filter.channels; start += PANEL) {
            const float* table = filter.table + start * filter.width * symbols;
            const long count = std::min<long>(PANEL, filter.channels - start);
            alignas(64) float values[PANEL];
            Floats bias[VECTORS], best[VECTORS];
            for (int v = 0; v < VECTORS; ++v) bias[v] = load(biases + start + v * LANES);
            for (long word = 0; word < words; ++word) {
                pool_block(table, symbols, filter.width, ids + word * columns, last[word], best);
                for (int v = 0; v < VECTORS; ++v) {
                    const Floats sum = best[v] + bias[v];
                    store(values + v * LANES, rectifies ? (sum < 0.0f ? Floats{} : sum) : hyperbolic_tangent(sum));
                }
                std::memcpy(outputs + word * features + start, values, 4 * count);
            }
        }
    }
}

}  // namespace
}  // namespace elmokit

using namespace elmokit;

extern "C" {

// Channels of a block of a table.
long elmokit_char_block() { return PANEL; }

// Ids (words, columns) through filters and maps. Returns 0, or 1 when an id is not in the tables.
long elmokit_encode_words(
    const int64_t* ids, long words, long columns, long symbols, const Filter* filters, long num_filters, int rectifies,
    const Map* maps, long num_maps, float* outputs, int num_threads) {
    thread_local Buffer kept;
    std::vector<int32_t> small_ids(words * columns);
    for (long place = 0; place < words * columns; ++place) {
        if (ids[place] < 0 || ids[place] >= symbols) return 1;
        small_ids[place] = static_cast<int32_t>(ids[place]);
    }
    long features = 0;
    for (long number = 0; number < num_filters; ++number) features += filters[number].channels;
    float* pooled = num_maps == 0 ? outputs : static_cast<float*>(kept.at_least(4 * words * features));
    const long words_a_task = std::clamp(words / (TASKS_PER_THREAD * num_threads), 1L, WORDS_AT_A_TIME);
    for_each_task((words + words_a_task - 1) / words_a_task, num_threads, [&](long task) {
        const long first = task * words_a_task;
        pool_words(
            filters, num_filters, symbols, small_ids.data() + first * columns, std::min(words_a_task, words - first),
            columns, features, rectifies != 0, pooled + first * features);
    });
    apply_maps(maps, num_maps, pooled, words, outputs, num_threads);
    kept.keep_at_most(KEPT_BYTES);
    return 0;
}

}  // extern "C"
