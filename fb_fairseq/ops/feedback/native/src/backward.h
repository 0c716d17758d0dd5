// A step of a tile, backward: the gradients of activations only. What they leave in the tile's workspace becomes the
// gradients of weights at the tile's end (gradients.py in the folder above).
#pragma once
#include "forward.h"

// Of the steps of a tile, what is multiplied to give the gradients of a head's keys (side 0) or values of a set: rows of
// weights of slots and of vectors [E], one of each for each step and layer that uses the set.
struct Rank1 {
  const float *weights, *vectors;
  long rows_per_step, weights_stride, vectors_stride;
  float scale;

  Rank1(const Range& r, const TileArgs& k, long set, int side, long head) {
    const BlockArgs& c = r.c;
    const long g = r.b0 * c.H + head, layer = c.I > 1 ? set : 0, stride = c.I > 1 ? c.L : 1;
    rows_per_step = c.I > 1 ? 1 : c.L;
    weights = (side ? k.p_slots : k.ds) + (layer * r.G + g) * k.W;
    vectors = (side ? k.da : c.q + k.at * c.L * c.B * r.X) + layer * c.B * r.X + g * c.E;
    weights_stride = stride * r.G * k.W, vectors_stride = stride * c.B * r.X;
    scale = side ? 1.f : c.scale;
  }
};

INLINE float* d_slot(const Range& r, const TileArgs& k, long set, int side, long head, long slot) {
  const BlockArgs& c = r.c;
  return k.d_slots + (((side * c.I + set) * r.G + r.b0 * c.H + head) * (c.C + c.T) + slot) * c.E;
}

// The gradient of a step's keys or values, from the later tiles and from the later steps of this one.
static void slot_gradient(const Range& r, const TileArgs& k, long i, long set, int side, long head, float* scratch, float* out) {
  const BlockArgs& c = r.c;
  const Rank1 from(r, k, set, side, head);
  const long first = (i + 1) * from.rows_per_step, rows = (k.steps - i - 1) * from.rows_per_step;
  const float* weights = from.weights + first * from.weights_stride + c.S + i;
  for (long row = 0; row < rows; row++) scratch[row] = weights[row * from.weights_stride];
  weighted_sum(scratch, rows, c.E, Rows{from.vectors + first * from.vectors_stride, from.vectors_stride}, out);
  const float* later = d_slot(r, k, set, side, head, c.C + k.first + i);
  for (long e = 0; e < c.E; e++) out[e] = later[e] + from.scale * out[e];
}

// Add what the steps of a tile contribute to the gradients of the keys and values before it.
static void push_slots(const Range& r, const TileArgs& k, float* vectors) {
  const BlockArgs& c = r.c;
  const long slots = c.C + k.first < c.S ? c.C + k.first : c.S;
  for (long set = 0; set < c.I; set++)
    for (int side = 0; side < 2; side++)
      for (long head = 0; head < r.heads; head++) {
        const Rank1 from(r, k, set, side, head);
        const long rows = k.steps * from.rows_per_step;
        for (long row = 0; row < rows; row++) memcpy(vectors + row * c.E, from.vectors + row * from.vectors_stride, c.E * sizeof(float));
        add_transposed_product(slots, rows, c.E, from.weights + c.S - slots, from.weights_stride, vectors, c.E, from.scale,
                               d_slot(r, k, set, side, head, c.C + k.first - slots), c.E);
      }
}

// The gradients of a step's memories.
static void memory_backward(const Range& r, const TileArgs& k, long i, float* scratch) {
  const BlockArgs& c = r.c;
  const long t = k.first + i, last = t + 1 == c.T;
  for (long m = 0; m < c.K; m++) memset(r.by_layer(k.d_memory, k.tile_steps, m, i, c.D), 0, r.n * c.D * sizeof(float));
  for (long s = 0; s < c.I; s++) {
    const SetArgs& set = c.sets[s];
    float *d_kv = r.by_layer(k.d_kv, k.tile_steps, s, i, 2 * r.X), *d_normed = r.by_layer(k.d_kv_normed, k.tile_steps, s, i, c.D);
    if (last) {  // no step of the block sees it
      memset(d_kv, 0, r.n * 2 * r.X * sizeof(float));
      memset(d_normed, 0, r.n * c.D * sizeof(float));
      continue;
    }
    for (long head = 0; head < r.heads; head++)
      for (int side = 0; side < 2; side++)
        slot_gradient(r, k, i, s, side, head, scratch, d_kv + (head / c.H * 2 + side) * r.X + head % c.H * c.E);
    float* target = set.norm.weight ? d_normed : scratch;
    product(r.n, 2 * r.X, c.D, d_kv, 2 * r.X, set.project_t.panels, 2 * r.X * PANEL, {}, target, c.D);
    float* d_memory = r.by_layer(k.d_memory, k.tile_steps, set.memory, i, c.D);
    if (set.norm.weight)
      layer_norm_backward(r.n, c.D, d_normed, r.by_layer(c.memory, c.T, set.memory, t, c.D), set.norm, c.eps, true, d_memory);
    else
      add_scaled(r.n * c.D, 1.f, target, d_memory);
  }
}

// The gradient of softmax's input, in place of that of its result: p (dp - sum of p dp).
INLINE void softmax_backward(long n, const float* p, float* d) {
  float mean = 0;
#pragma omp simd reduction(+ : mean)
  for (long i = 0; i < n; i++) mean += p[i] * d[i];
  for (long i = 0; i < n; i++) d[i] = p[i] * (d[i] - mean);
}

// From the gradient of a step's attention to those of its scores, which go to the workspace as the weights after dropout
// do, and of its queries.
static void attend_backward(const Range& r, const TileArgs& k, long l, long i, const float* da, float* dq, float* scratch) {
  const BlockArgs& c = r.c;
  const LayerArgs& layer = c.layers[l];
  const long t = k.first + i, at = k.at + i, n = r.window(layer, t), older = c.S - n;
  if (n == 0) {
    memset(dq, 0, r.n * r.X * sizeof(float));
    return;
  }
  float *by_position = scratch, *from_positions = by_position + r.heads * c.S;
  if (c.value_positions_t) by_distance(r.heads, c, n, da, c.value_positions_t, by_position);
  const Mask mask = r.at(c.attention_mask, l, t, c.H * c.mask_slots);
  const float* p = c.p + ((at * c.L + l) * r.G + r.b0 * c.H) * c.S + older;
  const long column = ((i * c.L + l) * r.G + r.b0 * c.H) * k.W + i + older;
  float *ds = k.ds + column, *used = k.p_slots + column;
  for (long head = 0; head < r.heads; head++) {
    float* d = ds + head * k.W;
    dots(da + head * c.E, c.E, n, r.window(layer, 1, t, head), d);
    if (c.value_positions_t) add_scaled(n, 1.f, by_position + head * c.S + older, d);
    if (mask.keep) {
      const uint8_t* keep = mask.keep + (head + 1) * c.mask_slots - n;
      drop(n, keep, mask.scale, d, d);
      drop(n, keep, mask.scale, p + head * c.S, used + head * k.W);
    } else {
      memcpy(used + head * k.W, p + head * c.S, n * sizeof(float));
    }
    softmax_backward(n, p + head * c.S, d);
    weighted_sum(d, n, c.E, r.window(layer, 0, t, head), dq + head * c.E);
  }
  if (c.key_positions_t) {
    product(r.heads, n, c.E, ds, k.W, c.key_positions_t + older * PANEL, c.S * PANEL, {}, from_positions, c.E);
    add_scaled(r.heads * c.E, 1.f, from_positions, dq);
  }
  for (long j = 0; j < r.heads * c.E; j++) dq[j] *= c.scale;
}

// The same for attention to the encoder's output. The scores' gradients are kept with their scale.
static void attend_encoder_backward(const Range& r, const TileArgs& k, long l, long i, const float* da, float* dq) {
  const BlockArgs& c = r.c;
  const LayerArgs& layer = c.layers[l];
  const long n = c.sources, t = k.first + i;
  const Mask mask = r.at(c.cross_mask, l, t, c.H * n);
  const float* p = c.cross_p + (((k.at + i) * c.L + l) * r.G + r.b0 * c.H) * n;
  float* ds = k.dcs + ((i * c.L + l) * r.G + r.b0 * c.H) * n;
  for (long head = 0; head < r.heads; head++) {
    float* d = ds + head * n;
    dots(da + head * c.E, c.E, n, r.encoder(layer, 1, head), d);
    if (mask.keep) drop(n, mask.keep + head * n, mask.scale, d, d);
    softmax_backward(n, p + head * n, d);
    for (long j = 0; j < n; j++) d[j] *= c.scale;
    weighted_sum(d, n, c.E, r.encoder(layer, 0, head), dq + head * c.E);
  }
}

// The end of a sublayer: the gradient of what is added to the residual connection goes to d_out, after dropout. With
// post-norm dx goes back through the norm of the sum first.
static void residual_backward(const Range& r, Mask mask, Norm norm, const float* summed, float* d_norm, float* d_out, float* dx) {
  const BlockArgs& c = r.c;
  const long size = r.n * c.D;
  if (!c.pre_norm) {
    memcpy(d_norm, dx, size * sizeof(float));
    layer_norm_backward(r.n, c.D, d_norm, summed, norm, c.eps, false, dx);
  }
  if (mask.keep) drop(size, mask.keep, mask.scale, dx, d_out);
  else memcpy(d_out, dx, size * sizeof(float));
}

// The beginning of a sublayer: dy's gradient through y = x W is added to dx; with pre-norm through the norm of x too.
static void input_backward(const Range& r, const float* dy, long width, const Matrix& w_t, Norm norm, const float* x, float* d_norm, float* dx) {
  const BlockArgs& c = r.c;
  Epilogue e;
  if (!c.pre_norm) e.then = Then::add, e.other = dx, e.stride = c.D;
  product(r.n, width, c.D, dy, width, w_t.panels, width * PANEL, e, c.pre_norm ? d_norm : dx, c.D);
  if (c.pre_norm) layer_norm_backward(r.n, c.D, d_norm, x, norm, c.eps, true, dx);
}

// From the gradient of a layer's output to that of its input, in place.
static void layer_backward(const Range& r, const TileArgs& k, long l, long i, float* dx, float* scratch) {
  const BlockArgs& c = r.c;
  const LayerArgs& layer = c.layers[l];
  const long t = k.first + i, at = k.at + i;
  auto work = [&](float* x, long width) { return r.by_layer(x, k.tile_steps, l, i, width); };
  auto input = [&](float* pre, float* post) { return r.record(c.pre_norm ? pre : post, l, at, c.D); };

  // Feed-forward sublayer.
  const float* x = input(c.sources ? c.crossed_x : c.attended_x, c.ffn_sum);
  float *d_out = work(k.d_ffn, c.D), *d_hidden = work(k.d_hidden, c.F), *d_norm = work(k.d_ffn_norm, c.D);
  residual_backward(r, r.at(c.ffn_residual_mask, l, t, c.D), layer.ffn_norm, x, d_norm, d_out, dx);
  const float* hidden = r.record(c.hidden, l, at, c.F);
  const Mask mask = r.at(c.hidden_mask, l, t, c.F);
  const bool plain = c.activation == Activation::relu && !mask.keep;
  Epilogue e;
  if (plain) e.then = Then::where_positive, e.other = hidden, e.stride = c.F;
  product(r.n, c.D, c.F, d_out, c.D, layer.fc2_t.panels, c.D * PANEL, e, d_hidden, c.F);
  if (mask.keep) drop(r.n * c.F, mask.keep, mask.scale, d_hidden, d_hidden);
  if (!plain) activate_backward(c.activation, r.n * c.F, hidden, d_hidden);
  input_backward(r, d_hidden, c.F, layer.fc1_t, layer.ffn_norm, x, d_norm, dx);

  // Attention to the encoder.
  if (c.sources) {
    x = input(c.attended_x, c.cross_sum);
    d_out = work(k.d_crossed, c.D), d_norm = work(k.d_cross_norm, c.D);
    float *da = r.by_step(k.dca, i, l, r.X), *dq = r.by_step(k.dcq, i, l, r.X);
    residual_backward(r, r.at(c.cross_residual_mask, l, t, c.D), layer.cross.norm, x, d_norm, d_out, dx);
    product(r.n, c.D, r.X, d_out, c.D, layer.cross.out_t.panels, c.D * PANEL, {}, da, r.X);
    attend_encoder_backward(r, k, l, i, da, dq);
    input_backward(r, dq, r.X, layer.cross.query_t, layer.cross.norm, x, d_norm, dx);
  }

  // Attention to the memory.
  x = input(c.x_ATBD, c.attention_sum);
  d_out = work(k.d_attention, c.D), d_norm = work(k.d_attn_norm, c.D);
  float *da = r.by_step(k.da, i, l, r.X), *dq = r.by_step(k.dq, i, l, r.X);
  residual_backward(r, r.at(c.attention_residual_mask, l, t, c.D), layer.memory.norm, x, d_norm, d_out, dx);
  product(r.n, c.D, r.X, d_out, c.D, layer.memory.out_t.panels, c.D * PANEL, {}, da, r.X);
  attend_backward(r, k, l, i, da, dq, scratch);
  // Layer 1's queries depend on the embedding alone: they follow at the tile's end, all steps at once.
  if (l > 0) input_backward(r, dq, r.X, layer.memory.query_t, layer.memory.norm, x, d_norm, dx);
}
