// The logarithm of the sum over all words of e^logit: what a softmax divides by, without ever storing a logit.
//
// A task is a segment of the words with all rows: it lays the weights of a panel out, multiplies the rows with it and adds
// e^(logit - largest so far) up, lane by lane. Segments are the same whoever computes them and are joined in their order, so
// neither threads nor other rows change a bit. Where other processes have the cores, a thread that comes late does fewer.
#include <tuple>
#include <vector>

#include "memory.hpp"
#include "panels.hpp"
#include "pool.hpp"

namespace elmokit {
namespace {

constexpr long WORDS_A_SEGMENT = 2048;
constexpr float LEAST = -std::numeric_limits<float>::max();

// The terms of one row so far: lane by lane the largest logit, and the sum of e^(logit - largest).
struct Terms {
    Floats largest = all(LEAST), sum = {};

    INLINE void add(const float* logits, const float* bias) {
        Floats values[VECTORS];
        Floats top = largest;
#pragma GCC unroll 4
        for (int v = 0; v < VECTORS; ++v) {
            values[v] = load(logits + v * LANES) + load(bias + v * LANES);
            top = larger(top, values[v]);
        }
        Floats terms = {};
#pragma GCC unroll 4
        for (int v = 0; v < VECTORS; ++v) terms += power(values[v] - top);
        sum = sum * power(largest - top) + terms;
        largest = top;
    }

    // The same as two numbers.
    std::pair<float, float> joined() const {
        float top = LEAST, total = 0;
        for (int lane = 0; lane < LANES; ++lane) top = std::max(top, largest[lane]);
        const Floats parts = sum * power(largest - top);
        for (int lane = 0; lane < LANES; ++lane) total += parts[lane];
        return {top, total};
    }

   private:
    static INLINE Floats power(Floats x) { return exponential(clamped(x, all(87.0f))); }
};

struct Softmax {
    const float *weights, *bias;  // (words, inner), (words)
    long words, inner;
};

// Of every row (rows, inner): the largest logit of the words [from, to), and the sum over them.
void add_segment(const Softmax& softmax, long from, long to, const float* rows, long num_rows, float* largest, float* sums) {
    thread_local Buffer panel_memory;
    const long inner = softmax.inner;
    std::vector<Terms> terms(num_rows);
    for (long first = from; first < to; first += PANEL) {
        const Shape shape{inner, std::min<long>(PANEL, to - first), 1};
        void* memory = panel_memory.at_least(Exact<float>::bytes(shape));
        Exact<float>::pack(shape, {softmax.weights + first * inner, 1, inner}, softmax.bias + first, memory);
        const Exact<float> panel(shape, memory);
        std::fill(const_cast<float*>(panel.bias) + shape.columns, const_cast<float*>(panel.bias) + PANEL,
            -std::numeric_limits<float>::infinity());  // columns that are no words
        multiply(panel, 0, rows, inner, nullptr, num_rows,
            [&](long row, const float* values) { terms[row].add(values, panel.bias); });
    }
    for (long row = 0; row < num_rows; ++row) std::tie(largest[row], sums[row]) = terms[row].joined();
}

}  // namespace
}  // namespace elmokit

using namespace elmokit;

// For each row (num_rows, inner) log of the sum over all words of e^(row · weight + bias).
extern "C" void elmokit_log_sums(
    const float* weights, const float* bias, long words, long inner, const float* rows, long num_rows, float* outputs,
    int num_threads) {
    const Softmax softmax{weights, bias, words, inner};
    const long num_segments = (words + WORDS_A_SEGMENT - 1) / WORDS_A_SEGMENT;
    std::vector<float> largest(num_segments * num_rows), sums(num_segments * num_rows);
    for_each_task(num_segments, num_threads, [&](long segment) {
        const long from = segment * WORDS_A_SEGMENT;
        add_segment(softmax, from, std::min(words, from + WORDS_A_SEGMENT), rows, num_rows,
            largest.data() + segment * num_rows, sums.data() + segment * num_rows);
    });
    for (long row = 0; row < num_rows; ++row) {
        float top = LEAST;
        for (long segment = 0; segment < num_segments; ++segment)
            top = std::max(top, largest[segment * num_rows + row]);
        double total = 0;
        for (long segment = 0; segment < num_segments; ++segment) {
            const long place = segment * num_rows + row;
            total += sums[place] * std::exp(static_cast<double>(largest[place]) - top);
        }
        // A logit that is infinite has made NaN of the sum.
        outputs[row] = top == std::numeric_limits<float>::infinity() ? top : static_cast<float>(top + std::log(total));
    }
}
