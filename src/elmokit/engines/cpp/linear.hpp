// Linear maps and highways: what is multiplied with rows that need no history.
#pragma once

namespace elmokit {

// One of them, as Python hands it over. A highway has two groups of columns: the gate, then the transformation (see
// `Highway` in word_encoder.py).
struct Map {
    long storage, inner, columns, groups, activation;
    const void* memory;  // packed, with the bias
};

// Rows through one map after the other.
void apply_maps(
    const Map* maps, long num_maps, const float* inputs, long num_rows, float* outputs, int num_threads);

}  // namespace elmokit
