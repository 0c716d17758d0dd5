// A step of a block, forward: the layers, the memories that they leave, and the keys and values of these.
#pragma once
#include "products.h"
#include "range.h"
#include "rows.h"

// The attention weights of a head: scores -> p, and p after dropout, which is what is returned. `kept` is room for it.
INLINE const float* attention_weights(float* scores, long n, Visible seen, const uint8_t* keep, float keep_scale,
                                      float* kept) {
  softmax(scores, n, seen);
  if (!keep) return scores;
  drop(n, keep, keep_scale, scores, kept);
  return kept;
}

// out [heads, S]: the products of vectors [heads, E] with the positions of the last n slots, and perhaps of some before.
// positions: packed [E, S].
INLINE void by_distance(long heads, const BlockArgs& block, long n, const float* vectors, const float* positions,
                        float* out) {
  const long S = block.S, E = block.E, first = (S - n) / PANEL * PANEL;
  product(heads, E, S - first, vectors, E, positions + first * E, E * PANEL, {}, out + first, S);
}

// The products of keys and queries -> scores. position: to be added; or null.
INLINE void scale_scores(long n, float scale, const float* position, float* products) {
  if (position)
    for (long i = 0; i < n; i++) products[i] = (products[i] + position[i]) * scale;
  else
    for (long i = 0; i < n; i++) products[i] *= scale;
}

// Add the positions of values to a [heads, E], with the weights [heads, S] of the last n slots.
INLINE void add_value_positions(long heads, const BlockArgs& block, long n, const float* weights, float* a) {
  const long S = block.S, E = block.E, older = S - n;
  Epilogue epilogue;
  epilogue.then = Then::add, epilogue.other = a, epilogue.stride = E;
  product(heads, n, E, weights + older, S, block.value_positions + older * PANEL, S * PANEL, epilogue, a, E);
}

// a [heads, E] = attention of the queries q [heads, E] to the memory; the weights go to p [heads, S], newest last.
// window: a Window or a RingWindow.
template <class AnyWindow>
static void attend(const Range& range, const AnyWindow& window, const float* q, float* p, float* a, float* scratch) {
  const BlockArgs& block = range.block;
  const long n = window.n, S = block.S, E = block.E, older = S - n, heads = range.heads;
  if (n == 0) {
    memset(a, 0, heads * E * sizeof(float));
    return;
  }
  float *by_position = scratch, *kept = by_position + heads * S;
  const Mask mask = window.mask();
  if (block.key_positions) by_distance(heads, block, n, q, block.key_positions, by_position);
  for (long head = 0; head < heads; head++) {
    float *weights = p + head * S + older, *position = by_position + head * S + older;
    dots(q + head * E, E, n, window.rows(0, head), weights);
    scale_scores(n, block.scale, block.key_positions ? position : nullptr, weights);
    const uint8_t* keep = mask.keep ? mask.keep + (head + 1) * block.mask_slots - n : nullptr;
    const float* used =
        attention_weights(weights, n, window.seen(head), keep, mask.scale, kept + head * S + older);
    weighted_sum(used, n, E, window.rows(1, head), a + head * E);
  }
  if (block.value_positions) add_value_positions(heads, block, n, mask.keep ? kept : p, a);
}

// The same for attention to the encoder's output; the weights go to p [heads, sources]. kept: [sources].
static void attend_encoder(const Range& range, long l, long t, const float* q, float* p, float* a, float* kept) {
  const BlockArgs& block = range.block;
  const LayerArgs& layer = block.layers[l];
  const long n = block.sources, E = block.E;
  const Mask mask = range.at(block.cross_mask, l, t, block.H * n);
  for (long head = 0; head < range.heads; head++) {
    float* weights = p + head * n;
    dots(q + head * E, E, n, range.encoder(layer, 0, head), weights);
    scale_scores(n, block.scale, nullptr, weights);
    const uint8_t* keep = mask.keep ? mask.keep + head * n : nullptr;
    const float* used = attention_weights(weights, n, range.seen_of_encoder(head), keep, mask.scale, kept);
    weighted_sum(used, n, E, range.encoder(layer, 1, head), a + head * E);
  }
}

// result [streams, D] = x + y W, of y [streams, width]; or with post-norm the norm of that sum, which goes to `summed`.
static void residual(const Range& range, const float* y, long width, const Matrix& matrix, Mask mask, const float* x,
                     Norm norm, float* summed, float* result) {
  const BlockArgs& block = range.block;
  const long D = block.D, size = range.streams * D;
  float* sum = block.pre_norm ? result : summed;
  Epilogue epilogue;
  epilogue.bias = matrix.bias;
  if (!mask.keep) epilogue.then = Then::add, epilogue.other = x, epilogue.stride = D;
  product(range.streams, width, D, y, width, matrix.panels, width * PANEL, epilogue, sum, D);
  if (mask.keep) {
    drop(size, mask.keep, mask.scale, sum, sum);
    add_scaled(size, 1.f, x, sum);
  }
  if (!block.pre_norm) layer_norm(range.streams, D, sum, norm, block.eps, result);
}

// y [streams, width] = x W + b, of x [streams, D]; with pre-norm, of the norm of x.
static void project_normed(const Range& range, const float* x, Norm norm, const Matrix& matrix, Then then, long width,
                           float* y, float* scratch) {
  const BlockArgs& block = range.block;
  const long D = block.D;
  if (block.pre_norm) layer_norm(range.streams, D, x, norm, block.eps, scratch);
  Epilogue epilogue;
  epilogue.bias = matrix.bias, epilogue.then = then;
  product(range.streams, D, width, block.pre_norm ? scratch : x, D, matrix.panels, D * PANEL, epilogue, y, width);
}

// The feed-forward sublayer, from x to result, both [streams, D].
static void feed_forward(const Range& range, long l, long t, long at, const float* x, float* result, float* scratch) {
  const BlockArgs& block = range.block;
  const RecordArgs& record = block.record;
  const LayerArgs& layer = block.layers[l];
  const long D = block.D, F = block.F, size = range.streams * F;
  float *hidden = range.record(record.hidden, l, at, F), *active = hidden;
  const bool relu = block.activation == Activation::relu;
  project_normed(range, x, layer.ffn_norm, layer.fc1, relu ? Then::relu : Then::nothing, F, hidden, scratch);
  if (!relu) {
    active = scratch;
    activate(block.activation, size, hidden, active);
  }
  const Mask mask = range.at(block.hidden_mask, l, t, F);
  if (mask.keep) {
    drop(size, mask.keep, mask.scale, active, scratch);
    active = scratch;
  }
  residual(range, active, F, layer.fc2, range.at(block.ffn_residual_mask, l, t, D), x, layer.ffn_norm,
           block.pre_norm ? nullptr : range.record(record.ffn_sum, l, at, D), result);
}

// The attention p [streams, H, sources] to the encoder, averaged over the first heads -> `aligned`.
static void align(const Range& range, long t, const float* p) {
  const BlockArgs& block = range.block;
  const long sources = block.sources, heads = block.alignment_heads;
  float* aligned = range.by_layer(block.aligned, block.T, 0, t, sources);
  memset(aligned, 0, range.streams * sources * sizeof(float));
  for (long b = 0; b < range.streams; b++)
    for (long h = 0; h < heads; h++)
      add_scaled(sources, 1.f / heads, p + (b * block.H + h) * sources, aligned + b * sources);
}

// A layer at step t, recorded at step `at`. window: see attend.
template <class AnyWindow>
static void run_layer(const Range& range, const AnyWindow& window, long l, long t, long at, float* scratch) {
  const BlockArgs& block = range.block;
  const RecordArgs& record = block.record;
  const LayerArgs& layer = block.layers[l];
  const long D = block.D, X = range.X;
  const float* x = range.record(record.x, l, at, D);
  float* result = range.record(record.x, l + 1, at, D);
  float *q = range.by_step(record.q, at, l, X), *a = range.by_step(record.a, at, l, X);
  float* attended = range.record(record.attended_x, l, at, D);
  if (l == 0 && block.first_query)
    memcpy(q, range.by_layer(block.first_query, block.T, 0, t, X), range.streams * X * sizeof(float));
  else
    project_normed(range, x, layer.memory.norm, layer.memory.query, Then::nothing, X, q, scratch);
  attend(range, window, q, range.by_head(record.p, at, l, block.S), a, scratch);
  residual(range, a, X, layer.memory.out, range.at(block.attention_residual_mask, l, t, D), x, layer.memory.norm,
           block.pre_norm ? nullptr : range.record(record.attention_sum, l, at, D), attended);
  if (block.sources) {
    float *crossed = range.record(record.crossed_x, l, at, D), *p = range.by_head(record.cross_p, at, l, block.sources);
    q = range.by_step(record.cross_q, at, l, X), a = range.by_step(record.cross_a, at, l, X);
    project_normed(range, attended, layer.cross.norm, layer.cross.query, Then::nothing, X, q, scratch);
    attend_encoder(range, l, t, q, p, a, scratch);
    residual(range, a, X, layer.cross.out, range.at(block.cross_residual_mask, l, t, D), attended, layer.cross.norm,
             block.pre_norm ? nullptr : range.record(record.cross_sum, l, at, D), crossed);
    attended = crossed;
    if (block.aligned && l == block.alignment_layer) align(range, t, p);
  }
  feed_forward(range, l, t, at, attended, result, scratch);
}

// The memories that a step leaves: weighted sums of its representations (v3 §3.3, Eq. 1).
static void mix_memories(const Range& range, long t, long at) {
  const BlockArgs& block = range.block;
  const long D = block.D, size = range.streams * D;
  for (long k = 0; k < block.K; k++) {
    float* memory = range.by_layer(block.memory, block.T, k, t, D);
    memset(memory, 0, size * sizeof(float));
    for (long l = 0; l <= block.L; l++)
      add_scaled(size, block.mix[k * (block.L + 1) + l], range.record(block.record.x, l, at, D), memory);
  }
}

// Write the keys and values of step t's memories to a slot, of `slots`.
static void project_memories(const Range& range, long t, long slot, long slots, float* scratch) {
  const BlockArgs& block = range.block;
  const long D = block.D, H = block.H, E = block.E, X = range.X;
  float *normed = scratch, *both = scratch + range.streams * D;
  for (long i = 0; i < block.I; i++) {
    const SetArgs& set = block.sets[i];
    const float* memory = range.by_layer(block.memory, block.T, set.memory, t, D);
    if (set.norm.weight) layer_norm(range.streams, D, memory, set.norm, block.eps, normed);
    Epilogue epilogue;
    epilogue.bias = set.project.bias;
    product(range.streams, D, 2 * X, set.norm.weight ? normed : memory, D, set.project.panels, D * PANEL, epilogue,
            both, 2 * X);
    for (int side = 0; side < 2; side++)
      for (long head = 0; head < range.heads; head++) {
        const float* vector = both + (head / H * 2 + side) * X + head % H * E;
        memcpy(set.slots[side] + ((range.first * H + head) * slots + slot) * E, vector, E * sizeof(float));
      }
  }
}
