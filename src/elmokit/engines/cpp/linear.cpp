// Packing weights, and the linear maps and highways of `linear.hpp`.
#include "linear.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include "memory.hpp"
#include "panels.hpp"
#include "pool.hpp"

namespace elmokit {
namespace {

constexpr long KEPT_BYTES = 32 << 20;  // of the rows between two maps

enum Activation { NONE, RELU, SIGMOID, TANH };

INLINE Floats activated(Floats values, long activation) {
    switch (activation) {
        case RELU: return values < 0.0f ? Floats{} : values;
        case SIGMOID: return sigmoid(values);
        case TANH: return hyperbolic_tangent(values);
        default: return values;
    }
}

// Large pages spare the walk through the page table at every panel.
void ask_for_large_pages(void* memory, long bytes) {
#if defined(MADV_HUGEPAGE)
    const uintptr_t page = sysconf(_SC_PAGESIZE);
    const uintptr_t from = (reinterpret_cast<uintptr_t>(memory) + page - 1) / page * page;
    const uintptr_t to = (reinterpret_cast<uintptr_t>(memory) + bytes) / page * page;
    if (from < to) madvise(reinterpret_cast<void*>(from), to - from, MADV_HUGEPAGE);
#endif
}

// Shared by linear maps and highways: a task is some rows with all panels where rows abound, else all rows with some.
template <class Kind, class Use>
void multiply_all(const Kind& weights, const float* inputs, long num_rows, int num_threads, const Use& use) {
    thread_local Buffer memory;
    const long inner = weights.shape.inner, num_panels = weights.shape.num_panels();
    const auto multiply_rows = [&](const Rows<Kind>& rows, long from, long count, long first, long last) {
        for (long panel = first; panel < last; ++panel)
            multiply(weights, panel, rows.values, rows.stride, rows.scales, count,
                [&](long row, const float* values) { use(panel, from + row, values); });
    };
    // Rows that stay in the cache of a core while the panels pass by.
    const long rows_a_block = std::max<long>(4 * ROWS, (512 << 10) / 4 / inner / ROWS * ROWS);
    const long num_blocks = (num_rows + rows_a_block - 1) / rows_a_block;
    if (num_blocks >= num_threads) {
        for_each_task(num_blocks, num_threads, [&](long block) {
            const long from = block * rows_a_block, count = std::min(rows_a_block, num_rows - from);
            multiply_rows(Rows<Kind>(inputs + from * inner, inner, count, memory), from, count, 0, num_panels);
        });
    } else {
        const Rows<Kind> rows(inputs, inner, num_rows, memory);
        // A panel is a task: whoever comes late, or is done early, makes the others wait for one panel at most.
        for_each_task(num_panels, num_threads, [&](long panel) { multiply_rows(rows, 0, num_rows, panel, panel + 1); });
    }
}

template <class Kind>
void linear(
    const Kind& weights, const float* inputs, long num_rows, long activation, float* outputs, int num_threads) {
    const long columns = weights.shape.columns;
    multiply_all(weights, inputs, num_rows, num_threads, [&](long panel, long row, const float* values) {
        alignas(64) float results[PANEL];
        for (int v = 0; v < PANEL; v += LANES)
            store(results + v, activated(load(values + v) + load(weights.bias + panel * PANEL + v), activation));
        const long first = panel * PANEL;
        std::memcpy(outputs + row * columns + first, results, 4 * std::min<long>(PANEL, columns - first));
    });
}

template <class Kind>
void highway(const Kind& weights, const float* inputs, long num_rows, float* outputs, int num_threads) {
    constexpr int HALF = PANEL / 2;
    const long columns = weights.shape.columns;
    multiply_all(weights, inputs, num_rows, num_threads, [&](long panel, long row, const float* values) {
        const long first = panel * HALF, count = std::min<long>(HALF, columns - first);
        const float* bias = weights.bias + panel * PANEL;
        alignas(64) float results[HALF] = {};
        std::memcpy(results, inputs + row * columns + first, 4 * count);
        for (int v = 0; v < HALF; v += LANES) {
            const Floats gate = sigmoid(load(values + v) + load(bias + v));
            const Floats transformed = activated(load(values + HALF + v) + load(bias + HALF + v), RELU);
            const Floats before = load(results + v);
            store(results + v, before + gate * (transformed - before));
        }
        std::memcpy(outputs + row * columns + first, results, 4 * count);
    });
}

}  // namespace

void apply_maps(
    const Map* maps, long num_maps, const float* inputs, long num_rows, float* outputs, int num_threads) {
    thread_local Buffer between[2];  // the rows that the last map made, and those that the next one makes
    for (long number = 0; number < num_maps; ++number) {
        const Map& map = maps[number];
        float* results = outputs;
        if (number + 1 < num_maps)
            results = static_cast<float*>(between[number % 2].at_least(4 * num_rows * map.columns));
        with_storage(map.storage, [&](auto kind) {
            const typename decltype(kind)::Type weights({map.inner, map.columns, map.groups}, map.memory);
            if (map.groups == 2)
                highway(weights, inputs, num_rows, results, num_threads);
            else
                linear(weights, inputs, num_rows, map.activation, results, num_threads);
        });
        inputs = results;
    }
    for (Buffer& rows : between) rows.keep_at_most(KEPT_BYTES);
}

}  // namespace elmokit

using namespace elmokit;

extern "C" {

const char* elmokit_instructions() {
#if defined(__AVX512VNNI__)
    return "AVX-512 and VNNI";
#elif defined(__AVX512F__)
    return "AVX-512";
#elif defined(__AVXVNNI__)
    return "AVX2 and VNNI";
#elif defined(__AVX2__)
    return "AVX2";
#else
    return "vectors of the compiler";
#endif
}

// Whether weights may be stored as halves here.
int elmokit_reads_halves() { return READS_HALVES; }

long elmokit_packed_bytes(int storage, long inner, long columns, long groups) {
    return with_storage(storage, [&](auto kind) { return decltype(kind)::Type::bytes({inner, columns, groups}); });
}

// Element (k, n) of the matrix is values[k * down + n * across]; it has groups * columns columns. No bias: null.
void elmokit_pack(
    int storage, long inner, long columns, long groups, const float* values, long down, long across,
    const float* bias, void* memory) {
    const Shape shape{inner, columns, groups};
    ask_for_large_pages(memory, elmokit_packed_bytes(storage, inner, columns, groups));
    with_storage(storage, [&](auto kind) {
        decltype(kind)::Type::pack(shape, Matrix{values, down, across}, bias, memory);
    });
}

void elmokit_maps(
    const Map* maps, long num_maps, const float* inputs, long num_rows, float* outputs, int num_threads) {
    apply_maps(maps, num_maps, inputs, num_rows, outputs, num_threads);
}

// Whether the kernels work here: 0, or the number of what does not.
int elmokit_check() {
    constexpr long WIDTH = PANEL + 3, ROWS_HERE = ROWS + 1;
    std::vector<float> weights(WIDTH * WIDTH), inputs(ROWS_HERE * WIDTH), outputs(inputs.size());
    for (size_t place = 0; place < weights.size(); ++place) weights[place] = static_cast<float>(place % 255) - 127;
    for (size_t place = 0; place < inputs.size(); ++place) inputs[place] = static_cast<float>(place * 7 % 255) - 127;
    for (int storage : {FLOATS, INT8, HALVES}) {
        if (storage == HALVES && !READS_HALVES) continue;
        std::vector<float> memory(elmokit_packed_bytes(storage, WIDTH, WIDTH, 1) / 4);
        elmokit_pack(storage, WIDTH, WIDTH, 1, weights.data(), WIDTH, 1, nullptr, memory.data());
        const Map map{storage, WIDTH, WIDTH, 1, NONE, memory.data()};
        apply_maps(&map, 1, inputs.data(), ROWS_HERE, outputs.data(), 2);
        for (long row = 0; row < ROWS_HERE; ++row)
            for (long column = 0; column < WIDTH; ++column) {
                double sum = 0;
                for (long k = 0; k < WIDTH; ++k) sum += inputs[row * WIDTH + k] * weights[k * WIDTH + column];
                const double far = std::fabs(outputs[row * WIDTH + column] - sum);
                if (!(far <= (storage == INT8 ? 127.0 * 127 * WIDTH / 64 : 1.0))) return 1 + storage;
            }
    }
    return 0;
}

}  // extern "C"
