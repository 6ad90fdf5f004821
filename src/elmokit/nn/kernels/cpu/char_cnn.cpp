// Convolutions over the characters of words and their maximum, as sums of table rows.
//
// A filter of width w sees w characters; what character s adds at offset k is a vector that can be computed once
// for all texts. So a window is w rows added up: no products, sixteen times less arithmetic than the convolution.
// Words end in padding; windows of padding alone are all the same, so each word is read up to the first of them.
//
// A table lies as [block of channels][offset][symbol][kBlock], so that what a block needs stays in the cache while
// many words pass. Row 0 is "no word": zeros.

#include <algorithm>
#include <cstdint>
#include <thread>
#include <vector>

namespace {

constexpr int64_t kBlock = 64;           // channels computed together; tables are padded to whole blocks
constexpr int64_t kWordsAtATime = 256;   // pass over a block of the table before the next is taken
constexpr int64_t kWordsAThread = 32;    // fewer are not worth a thread

typedef float Vector __attribute__((vector_size(64), aligned(4), may_alias));
constexpr int kVectors = kBlock * sizeof(float) / sizeof(Vector);

struct Filter {
    const float* table;
    const float* bias;
    int64_t width;
    int64_t channels;
    int64_t first;  // its first feature
};

// The last window that can differ from those before it: padding is what the word's last column holds.
int64_t last_window(const int32_t* ids, int64_t columns, int64_t width) {
    int64_t used = columns;
    while (used > 0 && ids[used - 1] == ids[columns - 1]) --used;
    return std::min(columns - width, used);
}

void pool_block(const float* table, int64_t symbols, int64_t width, const int32_t* ids, int64_t last, float* best) {
    Vector maximum[kVectors];
    for (int64_t place = 0; place <= last; ++place) {
        Vector sum[kVectors];
        const float* row = table + ids[place] * kBlock;
        for (int v = 0; v < kVectors; ++v) sum[v] = reinterpret_cast<const Vector*>(row)[v];
        for (int64_t offset = 1; offset < width; ++offset) {
            row = table + (offset * symbols + ids[place + offset]) * kBlock;
            for (int v = 0; v < kVectors; ++v) sum[v] += reinterpret_cast<const Vector*>(row)[v];
        }
        for (int v = 0; v < kVectors; ++v)
            maximum[v] = place == 0 ? sum[v] : (sum[v] > maximum[v] ? sum[v] : maximum[v]);
    }
    for (int v = 0; v < kVectors; ++v) reinterpret_cast<Vector*>(best)[v] = maximum[v];
}

void pool_words(const std::vector<Filter>& filters, int64_t symbols, const int32_t* ids, int64_t words,
                int64_t columns, int64_t features, bool relu, float* out) {
    std::vector<int64_t> last(words);
    float best[kBlock];
    for (const Filter& filter : filters) {
        for (int64_t word = 0; word < words; ++word)
            last[word] = last_window(ids + word * columns, columns, filter.width);
        for (int64_t start = 0; start < filter.channels; start += kBlock) {
            const float* table = filter.table + start * filter.width * symbols;
            const int64_t count = std::min(kBlock, filter.channels - start);
            for (int64_t word = 0; word < words; ++word) {
                pool_block(table, symbols, filter.width, ids + word * columns, last[word], best);
                float* place = out + word * features + filter.first + start;
                for (int64_t channel = 0; channel < count; ++channel) {
                    const float value = best[channel] + filter.bias[start + channel];
                    place[channel] = relu ? std::max(value, 0.0f) : value;
                }
            }
        }
    }
}

}  // namespace

// Features (words, features) of ids (words, columns). Returns 0, or 1 when an id is not in the tables.
extern "C" int elmokit_char_features(const int64_t* ids, int64_t words, int64_t columns, int64_t symbols,
                                     const float* const* tables, const float* const* biases, const int64_t* widths,
                                     const int64_t* channels, int64_t num_filters, int relu, float* out,
                                     int64_t threads) {
    std::vector<int32_t> small_ids(words * columns);
    for (int64_t place = 0; place < words * columns; ++place) {
        if (ids[place] < 0 || ids[place] >= symbols) return 1;
        small_ids[place] = static_cast<int32_t>(ids[place]);
    }
    std::vector<Filter> filters;
    int64_t features = 0;
    for (int64_t number = 0; number < num_filters; ++number) {
        filters.push_back({tables[number], biases[number], widths[number], channels[number], features});
        features += channels[number];
    }
    auto work = [&](int64_t begin, int64_t end) {
        for (int64_t first = begin; first < end; first += kWordsAtATime) {
            const int64_t count = std::min(kWordsAtATime, end - first);
            pool_words(filters, symbols, small_ids.data() + first * columns, count, columns, features, relu != 0,
                       out + first * features);
        }
    };
    threads = std::max<int64_t>(1, std::min(threads, words / kWordsAThread));
    std::vector<std::thread> helpers;
    for (int64_t number = 1; number < threads; ++number)
        helpers.emplace_back(work, words * number / threads, words * (number + 1) / threads);
    work(0, words / threads);
    for (std::thread& helper : helpers) helper.join();
    return 0;
}
