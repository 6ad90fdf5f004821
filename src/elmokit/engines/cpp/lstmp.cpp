// The recurrence of an LSTM layer with projection (see engines/README.md), one or two directions side by side.
//
// The matmuls with the inputs need no history: they are taken for a block of steps at once. A step is then a matmul of
// the previous outputs with the recurrent matrix, whose panels hold all four gates of LANES cells, so that the cells of a
// panel are finished while its sums are at hand; and a matmul with the projection. Rows that have ended take no part.
//
// Threads of a direction share its panels and meet after the cells and after the outputs; a thread keeps its cells.
#include <memory>
#include <tuple>
#include <vector>

#include "memory.hpp"
#include "panels.hpp"
#include "pool.hpp"

namespace elmokit {
namespace {

constexpr long KEPT_BYTES = 32 << 20;  // of each part of a workspace

// One direction, as Python hands it over.
struct Direction {
    const float* inputs;  // (words, input_dim)
    const void *input, *recurrent, *projection;  // packed; input holds the bias; no projection: null
    const float *first_hidden, *first_cell;  // (rows, output_dim), (rows, cell_dim): the initial state
    float *last_hidden, *last_cell;          // the final one
    float* outputs;                          // (words, output_dim)
};

struct Problem {
    long input_dim, cell_dim, output_dim, num_rows;
    const long* sizes;  // rows that read a word at each step
    long num_steps, words_a_block;
    float cell_clip, output_clip;  // infinite: none
};

// What a direction needs while it runs; kept from call to call by the calling thread.
struct Workspace {
    Buffer gates, cells, gated, quantised;

    void shrink() {
        for (Buffer* part : {&gates, &cells, &gated, &quantised}) part->keep_at_most(KEPT_BYTES);
    }
};

// Rows on their way into a matmul: as they are, or quantised by the threads of the direction together.
template <class Kind>
struct Shared;

template <class Stored>
struct Shared<Exact<Stored>> {
    const float* values;
    long stride;
    const float* scales = nullptr;

    Shared(const float* rows, long, long stride, long, Workspace&, Barrier&, int, int) : values(rows), stride(stride) {}
};

template <>
struct Shared<Quantised> {
    const Quantised::Value* values;
    long stride;
    const float* scales;

    Shared(
        const float* rows, long inner, long row_stride, long num_rows, Workspace& workspace, Barrier& barrier,
        int thread, int num_threads)
        : stride(Quantised::stride(inner)) {
        auto* scales = static_cast<float*>(workspace.quantised.at_least(0));
        auto* values = reinterpret_cast<Quantised::Value*>(scales + num_rows);
        const auto [first, last] = share(num_rows, thread, num_threads);
        for (long row = first; row < last; ++row)
            scales[row] = Quantised::quantise(rows + row * row_stride, inner, values + row * stride);
        barrier.wait();
        this->values = values;
        this->scales = scales;
    }
};

// The gates of LANES cells of one row, their inputs already summed; the cell is renewed, the gated output returned.
INLINE Floats renew(const float* from_inputs, const float* from_outputs, float* cell, Floats clip) {
    const auto gate = [&](int number) { return load(from_inputs + number * LANES) + load(from_outputs + number * LANES); };
    const Floats kept = sigmoid(gate(2)) * load(cell) + sigmoid_times_tanh(gate(0), gate(1));
    const Floats clipped = clamped(kept, clip);
    store(cell, clipped);
    return sigmoid_times_tanh(gate(3), clipped);
}

template <class Kind>
class Runner {
   public:
    Runner(const Problem& problem, const Direction& direction, Workspace& workspace, Barrier& barrier, int thread,
           int num_threads)
        : p_(problem),
          d_(direction),
          workspace_(workspace),
          barrier_(barrier),
          thread_(thread),
          num_threads_(num_threads),
          input_({p_.input_dim, p_.cell_dim, VECTORS}, d_.input),
          recurrent_({p_.output_dim, p_.cell_dim, VECTORS}, d_.recurrent),
          projection_({p_.cell_dim, p_.output_dim, 1}, d_.projection),
          num_panels_(recurrent_.shape.num_panels()),
          width_(num_panels_ * LANES) {
        gates_ = static_cast<float*>(workspace_.gates.at_least(0));
        cells_ = static_cast<float*>(workspace_.cells.at_least(0));
        gated_ = static_cast<float*>(workspace_.gated.at_least(0));
        std::tie(first_, last_) = share(num_panels_, thread, num_threads);
    }

    // Memory is made before the threads start, by one of them.
    static void prepare(const Problem& p, Workspace& workspace) {
        const long width = (p.cell_dim + LANES - 1) / LANES * LANES;
        workspace.gates.at_least(p.words_a_block * width * VECTORS * 4);
        workspace.cells.at_least(p.num_rows * width * 4);
        workspace.gated.at_least(p.num_rows * width * 4);
        const long widest = std::max({p.input_dim, p.output_dim, p.cell_dim}) + 4;
        const long most_rows = std::max(p.words_a_block, p.num_rows);
        if (Kind::QUANTISES) workspace.quantised.at_least(most_rows * (4 + widest * sizeof(typename Kind::Value)));
    }

    void run() {
        copy_cells(d_.first_cell, p_.cell_dim, cells_, width_);
        const float* previous = d_.first_hidden;
        long word = 0, block_start = 0, block_end = 0;
        for (long step = 0; step < p_.num_steps; ++step) {
            const long rows = p_.sizes[step];
            if (word == block_end) {
                block_start = word;
                block_end = end_of_block(step, word);
                multiply_inputs(block_start, block_end);
            }
            float* outputs = d_.outputs + word * p_.output_dim;
            renew_cells(step == 0 && is_zero(previous) ? nullptr : previous, rows, word - block_start,
                block_end - block_start);
            barrier_.wait();
            d_.projection == nullptr ? copy_gated(rows, outputs) : project(rows, outputs);
            barrier_.wait();
            previous = outputs;
            word += rows;
        }
        copy_cells(cells_, width_, d_.last_cell, p_.cell_dim);
        if (thread_ == 0) keep_last_outputs();
    }

   private:
    long end_of_block(long step, long word) const {
        long end = word;
        do end += p_.sizes[step++];
        while (step < p_.num_steps && end + p_.sizes[step] - word <= p_.words_a_block);
        return end;
    }

    void copy_cells(const float* from, long from_stride, float* to, long to_stride) const {
        const long first = first_ * LANES, count = std::min(last_ * LANES, p_.cell_dim) - first;
        for (long row = 0; row < p_.num_rows && count > 0; ++row)
            std::memcpy(to + row * to_stride + first, from + row * from_stride + first, 4 * count);
    }

    // gates_ [panel][word of the block][PANEL], bias added.
    void multiply_inputs(long block_start, long block_end) {
        const long words = block_end - block_start;
        const Shared<Kind> rows(d_.inputs + block_start * p_.input_dim, p_.input_dim, p_.input_dim, words, workspace_,
            barrier_, thread_, num_threads_);
        // Words that stay in the cache of a core while the panels pass by.
        const long words_at_a_time = std::max<long>(4 * ROWS, (256 << 10) / 4 / p_.input_dim / ROWS * ROWS);
        for (long from = 0; from < words; from += words_at_a_time)
            for (long panel = first_; panel < last_; ++panel) {
                const float* bias = input_.bias + panel * PANEL;
                float* to = gates_ + (panel * words + from) * PANEL;
                multiply(input_, panel, rows.values + from * rows.stride, rows.stride, rows.scales + from,
                    std::min(words_at_a_time, words - from), [&](long word, const float* values) {
                        for (int v = 0; v < PANEL; v += LANES)
                            store(to + word * PANEL + v, load(values + v) + load(bias + v));
                    });
            }
        if (Kind::QUANTISES) barrier_.wait();  // the steps quantise into the same memory
    }

    // Whether no row has an output yet: most sentences are read from nothing.
    bool is_zero(const float* outputs) const {
        return std::all_of(outputs, outputs + p_.num_rows * p_.output_dim, [](float value) { return value == 0; });
    }

    // No previous outputs (null): the gates see the inputs alone.
    void renew_cells(const float* previous, long num_rows, long first_word, long words_in_block) {
        const Floats clip = all(p_.cell_clip);
        const auto renew_panel = [&](long panel) {
            return [=](long row, const float* values) {
                const float* gates = gates_ + (panel * words_in_block + first_word + row) * PANEL;
                const long place = row * width_ + panel * LANES;
                store(gated_ + place, renew(gates, values, cells_ + place, clip));
            };
        };
        if (previous == nullptr) {
            static constexpr float nothing[PANEL] = {};
            for (long panel = first_; panel < last_; ++panel)
                for (long row = 0; row < num_rows; ++row) renew_panel(panel)(row, nothing);
            return;
        }
        const Shared<Kind> rows(
            previous, p_.output_dim, p_.output_dim, num_rows, workspace_, barrier_, thread_, num_threads_);
        for (long panel = first_; panel < last_; ++panel)
            multiply(recurrent_, panel, rows.values, rows.stride, rows.scales, num_rows, renew_panel(panel));
    }

    // Panels of the projection are few: where threads are more, each takes some of the rows.
    void project(long num_rows, float* outputs) {
        const Shared<Kind> rows(
            gated_, p_.cell_dim, width_, num_rows, workspace_, barrier_, thread_, num_threads_);
        const long panels = projection_.shape.num_panels();
        const long parts = std::min((num_threads_ + panels - 1) / panels, (num_rows + ROWS - 1) / ROWS);
        const auto [first, last] = share(panels * parts, thread_, num_threads_);
        const Floats clip = all(p_.output_clip);
        for (long tile = first; tile < last; ++tile) {
            const long panel = tile / parts, count = std::min<long>(PANEL, p_.output_dim - panel * PANEL);
            const auto [from, to] = share(num_rows, tile % parts, parts);
            float* results = outputs + from * p_.output_dim + panel * PANEL;
            multiply(projection_, panel, rows.values + from * rows.stride, rows.stride, rows.scales + from, to - from,
                [&](long row, const float* values) {
                    alignas(64) float clipped[PANEL];
                    for (int v = 0; v < PANEL; v += LANES) store(clipped + v, clamped(load(values + v), clip));
                    std::memcpy(results + row * p_.output_dim, clipped, 4 * count);
                });
        }
    }

    void copy_gated(long num_rows, float* outputs) const {
        const auto [first, last] = share(num_rows, thread_, num_threads_);
        for (long row = first; row < last; ++row)
            std::memcpy(outputs + row * p_.output_dim, gated_ + row * width_, 4 * p_.output_dim);
    }

    void keep_last_outputs() const {
        const long without = p_.sizes[0] * p_.output_dim;  // rows from here on have no words
        std::memcpy(d_.last_hidden + without, d_.first_hidden + without, 4 * (p_.num_rows * p_.output_dim - without));
        const float* outputs = d_.outputs;
        for (long step = 0; step < p_.num_steps; ++step) {
            const long rows = p_.sizes[step], still = step + 1 < p_.num_steps ? p_.sizes[step + 1] : 0;
            std::memcpy(d_.last_hidden + still * p_.output_dim, outputs + still * p_.output_dim,
                4 * (rows - still) * p_.output_dim);
            outputs += rows * p_.output_dim;
        }
    }

    const Problem& p_;
    const Direction& d_;
    Workspace& workspace_;
    Barrier& barrier_;
    const int thread_, num_threads_;
    const Kind input_, recurrent_, projection_;
    const long num_panels_, width_;
    float *gates_, *cells_, *gated_;
    long first_, last_;  // panels of this thread
};

template <class Kind>
void run(const Problem& problem, const Direction* directions, long num_directions, int num_threads) {
    thread_local std::vector<Workspace> kept;
    auto& workspaces = kept;  // the caller's, in every thread
    if (static_cast<long>(workspaces.size()) < num_directions) workspaces = std::vector<Workspace>(num_directions);
    for (long d = 0; d < num_directions; ++d) Runner<Kind>::prepare(problem, workspaces[d]);
    const auto run_alone = [&](long d) {
        Barrier alone(1);
        Runner<Kind>(problem, directions[d], workspaces[d], alone, 0, 1).run();
    };
    if (num_threads <= num_directions) {
        for_each_task(num_directions, num_threads, run_alone);
    } else {
        // All threads for one direction after the other if they cannot be divided among them.
        const int each = num_threads % num_directions == 0 ? num_threads / num_directions : num_threads;
        std::vector<std::unique_ptr<Barrier>> barriers;
        for (long d = 0; d < num_directions; ++d) barriers.push_back(std::make_unique<Barrier>(each));
        in_parallel(num_threads, [&](int thread, int given) {
            for (long d = 0; d < num_directions; ++d)
                if (given == 1)  // no other thread could be had
                    run_alone(d);
                else if (each == num_threads || thread / each == d)
                    Runner<Kind>(problem, directions[d], workspaces[d], *barriers[d], thread % each, each).run();
        });
    }
    for (Workspace& workspace : workspaces) workspace.shrink();
}

}  // namespace
}  // namespace elmokit

using namespace elmokit;

extern "C" void elmokit_lstmp(
    int storage, const Direction* directions, long num_directions, long input_dim, long cell_dim, long output_dim,
    long num_rows, const long* sizes, long num_steps, long words_a_block, float cell_clip, float output_clip,
    int num_threads) {
    const Problem problem{input_dim, cell_dim,      output_dim, num_rows,   sizes,
                          num_steps, std::max(words_a_block, num_rows), cell_clip, output_clip};
    with_storage(storage, [&](auto kind) {
        run<typename decltype(kind)::Type>(problem, directions, num_directions, num_threads);
    });
}
