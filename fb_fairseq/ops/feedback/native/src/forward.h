// A step of a block, forward: the layers, the memories that they leave, and the keys and values of these.
#pragma once
#include "arguments.h"

// The attention weights of a head: scores -> p, and p after dropout, which is what is returned. `kept` is room for it.
INLINE const float* attention_weights(float* scores, long n, Visible seen, const uint8_t* keep, float keep_scale, float* kept) {
  softmax(scores, n, seen);
  if (!keep) return scores;
  drop(n, keep, keep_scale, scores, kept);
  return kept;
}

// out [heads, S]: the products of vectors [heads, E] with the positions of the last n slots (and perhaps of some before).
INLINE void by_distance(long heads, const BlockArgs& c, long n, const float* vectors, const float* positions, float* out) {
  const long first = (c.S - n) / PANEL * PANEL;
  product(heads, c.E, c.S - first, vectors, c.E, positions + first * c.E, c.E * PANEL, {}, out + first, c.S);
}

// The products of keys and queries -> scores. position: to be added; or null.
INLINE void scale_scores(long n, float scale, const float* position, float* products) {
  if (position)
    for (long i = 0; i < n; i++) products[i] = (products[i] + position[i]) * scale;
  else
    for (long i = 0; i < n; i++) products[i] *= scale;
}

// Add the positions of values to a, with the weights [heads, S] of the last n slots.
INLINE void add_value_positions(long heads, const BlockArgs& c, long n, const float* weights, float* a) {
  Epilogue e;
  e.then = Then::add, e.other = a, e.stride = c.E;
  product(heads, n, c.E, weights + c.S - n, c.S, c.value_positions + (c.S - n) * PANEL, c.S * PANEL, e, a, c.E);
}

// a = attention of the queries q to the memory; the weights go to p [heads, S], newest last.
static void attend(const Range& r, long l, long t, const float* q, float* p, float* a, float* scratch) {
  const BlockArgs& c = r.c;
  const LayerArgs& layer = c.layers[l];
  const long n = r.window(layer, t), older = c.S - n;
  if (n == 0) {
    memset(a, 0, r.n * r.X * sizeof(float));
    return;
  }
  float *by_position = scratch, *kept = by_position + r.heads * c.S;
  const Mask mask = r.at(c.attention_mask, l, t, c.H * c.mask_slots);
  if (c.key_positions) by_distance(r.heads, c, n, q, c.key_positions, by_position);
  for (long head = 0; head < r.heads; head++) {
    float *weights = p + head * c.S + older, *position = by_position + head * c.S + older;
    dots(q + head * c.E, c.E, n, r.window(layer, 0, t, head), weights);
    scale_scores(n, c.scale, c.key_positions ? position : nullptr, weights);
    const uint8_t* keep = mask.keep ? mask.keep + (head + 1) * c.mask_slots - n : nullptr;
    const float* used = attention_weights(weights, n, r.seen(layer, t, head, n), keep, mask.scale, kept + head * c.S + older);
    weighted_sum(used, n, c.E, r.window(layer, 1, t, head), a + head * c.E);
  }
  if (c.value_positions) add_value_positions(r.heads, c, n, mask.keep ? kept : p, a);
}

// The same for attention to the encoder's output; the weights go to p [heads, sources].
static void attend_encoder(const Range& r, long l, long t, const float* q, float* p, float* a, float* kept) {
  const BlockArgs& c = r.c;
  const LayerArgs& layer = c.layers[l];
  const long n = c.sources;
  const Mask mask = r.at(c.cross_mask, l, t, c.H * n);
  for (long head = 0; head < r.heads; head++) {
    float* weights = p + head * n;
    dots(q + head * c.E, c.E, n, r.encoder(layer, 0, head), weights);
    scale_scores(n, c.scale, nullptr, weights);
    const uint8_t* keep = mask.keep ? mask.keep + head * n : nullptr;
    const float* used = attention_weights(weights, n, r.seen_of_encoder(head), keep, mask.scale, kept);
    weighted_sum(used, n, c.E, r.encoder(layer, 1, head), a + head * c.E);
  }
}

// result = x + y W, or with post-norm the norm of that sum, which goes to `summed`.
static void residual(const Range& r, const float* y, long width, const Matrix& w, Mask mask, const float* x, Norm norm, float* summed,
                     float* result) {
  const BlockArgs& c = r.c;
  float* sum = c.pre_norm ? result : summed;
  Epilogue e;
  e.bias = w.bias;
  if (!mask.keep) e.then = Then::add, e.other = x, e.stride = c.D;
  product(r.n, width, c.D, y, width, w.panels, width * PANEL, e, sum, c.D);
  if (mask.keep) {
    drop(r.n * c.D, mask.keep, mask.scale, sum, sum);
    add_scaled(r.n * c.D, 1.f, x, sum);
  }
  if (!c.pre_norm) layer_norm(r.n, c.D, sum, norm, c.eps, result);
}

// y = x W + b; with pre-norm, of the norm of x.
static void project_normed(const Range& r, const float* x, Norm norm, const Matrix& w, Then then, long width, float* y, float* scratch) {
  const BlockArgs& c = r.c;
  if (c.pre_norm) layer_norm(r.n, c.D, x, norm, c.eps, scratch);
  Epilogue e;
  e.bias = w.bias, e.then = then;
  product(r.n, c.D, width, c.pre_norm ? scratch : x, c.D, w.panels, c.D * PANEL, e, y, width);
}

static void feed_forward(const Range& r, long l, long t, long at, const float* x, float* result, float* scratch) {
  const BlockArgs& c = r.c;
  const LayerArgs& layer = c.layers[l];
  float *hidden = r.record(c.hidden, l, at, c.F), *act = hidden;
  const bool relu = c.activation == Activation::relu;
  project_normed(r, x, layer.ffn_norm, layer.fc1, relu ? Then::relu : Then::nothing, c.F, hidden, scratch);
  if (!relu) {
    act = scratch;
    activate(c.activation, r.n * c.F, hidden, act);
  }
  const Mask mask = r.at(c.hidden_mask, l, t, c.F);
  if (mask.keep) {
    drop(r.n * c.F, mask.keep, mask.scale, act, scratch);
    act = scratch;
  }
  residual(r, act, c.F, layer.fc2, r.at(c.ffn_residual_mask, l, t, c.D), x, layer.ffn_norm,
           c.pre_norm ? nullptr : r.record(c.ffn_sum, l, at, c.D), result);
}

// A layer at step t, recorded at step `at`. attend_memory(q, p, a, scratch) is its attention to the memory.
template <class Attend>
static void run_layer(const Range& r, long l, long t, long at, Attend attend_memory, float* scratch) {
  const BlockArgs& c = r.c;
  const LayerArgs& layer = c.layers[l];
  const float* x = r.record(c.x_ATBD, l, at, c.D);
  float* result = r.record(c.x_ATBD, l + 1, at, c.D);
  if (!layer.active) {
    memcpy(result, x, r.n * c.D * sizeof(float));
    return;
  }
  float *q = r.by_step(c.q, at, l, r.X), *a = r.by_step(c.a, at, l, r.X), *attended = r.record(c.attended_x, l, at, c.D);
  if (l == 0 && c.first_query) memcpy(q, r.by_layer(c.first_query, c.T, 0, t, r.X), r.n * r.X * sizeof(float));
  else project_normed(r, x, layer.memory.norm, layer.memory.query, Then::nothing, r.X, q, scratch);
  attend_memory(q, c.p + ((at * c.L + l) * r.G + r.b0 * c.H) * c.S, a, scratch);
  residual(r, a, r.X, layer.memory.out, r.at(c.attention_residual_mask, l, t, c.D), x, layer.memory.norm,
           c.pre_norm ? nullptr : r.record(c.attention_sum, l, at, c.D), attended);
  if (c.sources) {
    float *crossed = r.record(c.crossed_x, l, at, c.D), *p = c.cross_p + ((at * c.L + l) * r.G + r.b0 * c.H) * c.sources;
    q = r.by_step(c.cross_q, at, l, r.X), a = r.by_step(c.cross_a, at, l, r.X);
    project_normed(r, attended, layer.cross.norm, layer.cross.query, Then::nothing, r.X, q, scratch);
    attend_encoder(r, l, t, q, p, a, scratch);
    residual(r, a, r.X, layer.cross.out, r.at(c.cross_residual_mask, l, t, c.D), attended, layer.cross.norm,
             c.pre_norm ? nullptr : r.record(c.cross_sum, l, at, c.D), crossed);
    attended = crossed;
    if (c.aligned && l == c.alignment_layer) {
      float* aligned = c.aligned + (t * c.B + r.b0) * c.sources;
      memset(aligned, 0, r.n * c.sources * sizeof(float));
      for (long b = 0; b < r.n; b++)
        for (long h = 0; h < c.alignment_heads; h++)
          add_scaled(c.sources, 1.f / c.alignment_heads, p + (b * c.H + h) * c.sources, aligned + b * c.sources);
    }
  }
  feed_forward(r, l, t, at, attended, result, scratch);
}

// The memories that a step leaves: weighted sums of its representations (v3 §3.3, Eq. 1).
static void mix_memories(const Range& r, long t, long at) {
  const BlockArgs& c = r.c;
  for (long m = 0; m < c.K; m++) {
    float* memory = r.by_layer(c.memory, c.T, m, t, c.D);
    memset(memory, 0, r.n * c.D * sizeof(float));
    for (long l = 0; l <= c.L; l++) {
      const float weight = c.mix[m * (c.L + 1) + l];
      if (weight != 0) add_scaled(r.n * c.D, weight, r.record(c.x_ATBD, l, at, c.D), memory);
    }
  }
}

// Write the keys and values of step t's memories to a slot, of `slots`.
static void project_memories(const Range& r, long t, long slot, long slots, float* scratch) {
  const BlockArgs& c = r.c;
  float *normed = scratch, *both = scratch + r.n * c.D;
  for (long i = 0; i < c.I; i++) {
    const SetArgs& set = c.sets[i];
    const float* memory = r.by_layer(c.memory, c.T, set.memory, t, c.D);
    if (set.norm.weight) layer_norm(r.n, c.D, memory, set.norm, c.eps, normed);
    Epilogue e;
    e.bias = set.project.bias;
    product(r.n, c.D, 2 * r.X, set.norm.weight ? normed : memory, c.D, set.project.panels, c.D * PANEL, e, both, 2 * r.X);
    for (int side = 0; side < 2; side++)
      for (long head = 0; head < r.heads; head++) {
        const float* vector = both + (head / c.H * 2 + side) * r.X + head % c.H * c.E;
        memcpy(set.slots[side] + ((r.b0 * c.H + head) * slots + slot) * c.E, vector, c.E * sizeof(float));
      }
  }
}
