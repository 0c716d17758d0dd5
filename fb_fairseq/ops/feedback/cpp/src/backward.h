// A step of a tile, backward: the gradients of activations only. The tile's workspace, which they fill, becomes the
// gradients of weights at the tile's end (gradients.py in the folder above). `in_tile` is a step's place in the tile.
#pragma once
#include "forward.h"

// Of the steps of a tile, what is multiplied to give the gradients of a head's keys (side 0) or values of a set: rows
// of weights of slots and of vectors [E], one of each for each step and layer that uses the set.
struct Rank1 {
  const float *weights, *vectors;  // [rows, W], [rows, E]; rows are a stride apart
  long rows_per_step, weights_stride, vectors_stride;
  float scale;

  Rank1(const Range& range, const TileArgs& tile, long set, int side, long head) {
    const BlockArgs& block = range.block;
    const bool own = block.I > 1;  // each layer has a set of its own
    const long head_in_block = range.first * block.H + head, layer = own ? set : 0, stride = own ? block.L : 1;
    const float* of_step = side ? tile.da : block.record.q + tile.at * block.L * block.B * range.X;
    rows_per_step = own ? 1 : block.L;
    weights = (side ? tile.p_slots : tile.ds) + (layer * range.G + head_in_block) * tile.W;
    vectors = of_step + layer * block.B * range.X + head_in_block * block.E;
    weights_stride = stride * range.G * tile.W, vectors_stride = stride * block.B * range.X;
    scale = side ? 1.f : block.scale;
  }
};

// The gradient [E] of a head's keys (side 0) or values in a slot.
INLINE float* d_slot(const Range& range, const TileArgs& tile, long set, int side, long head, long slot) {
  const BlockArgs& block = range.block;
  const long row = (side * block.I + set) * range.G + range.first * block.H + head;
  return tile.d_slots + (row * (block.C + block.T) + slot) * block.E;
}

// out [E] = the gradient of a step's keys or values, from the later tiles and from the later steps of this one.
static void slot_gradient(const Range& range, const TileArgs& tile, long in_tile, long set, int side, long head,
                          float* scratch, float* out) {
  const BlockArgs& block = range.block;
  const long E = block.E;
  const Rank1 from(range, tile, set, side, head);
  const long first = (in_tile + 1) * from.rows_per_step, rows = (tile.steps - in_tile - 1) * from.rows_per_step;
  const float* weights = from.weights + first * from.weights_stride + block.S + in_tile;
  for (long row = 0; row < rows; row++) scratch[row] = weights[row * from.weights_stride];
  weighted_sum(scratch, rows, E, Rows{from.vectors + first * from.vectors_stride, from.vectors_stride}, out);
  const float* later = d_slot(range, tile, set, side, head, block.C + tile.first + in_tile);
  for (long e = 0; e < E; e++) out[e] = later[e] + from.scale * out[e];
}

// Add what the steps of a tile contribute to the gradients of the keys and values before it. vectors: room for vectors
// [rows, E].
static void push_slots(const Range& range, const TileArgs& tile, float* vectors) {
  const BlockArgs& block = range.block;
  const long E = block.E, S = block.S, before = block.C + tile.first, slots = before < S ? before : S;
  for (long set = 0; set < block.I; set++)
    for (int side = 0; side < 2; side++)
      for (long head = 0; head < range.heads; head++) {
        const Rank1 from(range, tile, set, side, head);
        const long rows = tile.steps * from.rows_per_step;
        for (long row = 0; row < rows; row++)
          memcpy(vectors + row * E, from.vectors + row * from.vectors_stride, E * sizeof(float));
        add_transposed_product(slots, rows, E, from.weights + S - slots, from.weights_stride, vectors, E, from.scale,
                               d_slot(range, tile, set, side, head, before - slots), E);
      }
}

// The gradients of a step's memories.
static void memory_backward(const Range& range, const TileArgs& tile, long in_tile, float* scratch) {
  const BlockArgs& block = range.block;
  const long D = block.D, H = block.H, E = block.E, X = range.X, size = range.streams * D;
  const long t = tile.first + in_tile, last = t + 1 == block.T;
  auto work = [&](float* x, long k, long width) { return range.by_layer(x, tile.room, k, in_tile, width); };
  for (long k = 0; k < block.K; k++) memset(work(tile.d_memory, k, D), 0, size * sizeof(float));
  for (long i = 0; i < block.I; i++) {
    const SetArgs& set = block.sets[i];
    float *d_kv = work(tile.d_kv, i, 2 * X), *d_normed = work(tile.d_kv_normed, i, D);
    if (last) {  // no step of the block sees it
      memset(d_kv, 0, range.streams * 2 * X * sizeof(float));
      memset(d_normed, 0, size * sizeof(float));
      continue;
    }
    for (long head = 0; head < range.heads; head++)
      for (int side = 0; side < 2; side++)
        slot_gradient(range, tile, in_tile, i, side, head, scratch, d_kv + (head / H * 2 + side) * X + head % H * E);
    float* target = set.norm.weight ? d_normed : scratch;
    product(range.streams, 2 * X, D, d_kv, 2 * X, tile.transposes->projects[i], 2 * X * PANEL, {}, target, D);
    float* d_memory = work(tile.d_memory, set.memory, D);
    if (set.norm.weight) {
      const float* memory = range.by_layer(block.memory, block.T, set.memory, t, D);
      layer_norm_backward(range.streams, D, d_normed, memory, set.norm, block.eps, true, d_memory);
    } else {
      add_scaled(size, 1.f, target, d_memory);
    }
  }
}

// The gradient of softmax's input, in place of that of its result: p (dp - sum of p dp).
INLINE void softmax_backward(long n, const float* p, float* d) {
  float mean = 0;
#pragma omp simd reduction(+ : mean)
  for (long i = 0; i < n; i++) mean += p[i] * d[i];
  for (long i = 0; i < n; i++) d[i] = p[i] * (d[i] - mean);
}

// From the gradient da [heads, E] of a step's attention to those of its scores, which go to the workspace like the
// weights after dropout, and of its queries, dq [heads, E].
static void attend_backward(const Range& range, const TileArgs& tile, long l, long in_tile, const float* da, float* dq,
                            float* scratch) {
  const BlockArgs& block = range.block;
  const long t = tile.first + in_tile, at = tile.at + in_tile;
  const Window window(range, l, t);
  const long n = window.n, S = block.S, E = block.E, W = tile.W, older = S - n, heads = range.heads;
  if (n == 0) {
    memset(dq, 0, heads * E * sizeof(float));
    return;
  }
  const float *key_positions = tile.transposes->key_positions, *value_positions = tile.transposes->value_positions;
  float *by_position = scratch, *from_positions = by_position + heads * S;
  if (value_positions) by_distance(heads, block, n, da, value_positions, by_position);
  const Mask mask = window.mask();
  const float* p = range.by_head(block.record.p, at, l, S) + older;
  const long column = in_tile + older;
  float* ds = range.by_head(tile.ds, in_tile, l, W) + column;
  float* used = range.by_head(tile.p_slots, in_tile, l, W) + column;
  for (long head = 0; head < heads; head++) {
    float* d = ds + head * W;
    dots(da + head * E, E, n, window.rows(1, head), d);
    if (value_positions) add_scaled(n, 1.f, by_position + head * S + older, d);
    if (mask.keep) {
      const uint8_t* keep = mask.keep + (head + 1) * block.mask_slots - n;
      drop(n, keep, mask.scale, d, d);
      drop(n, keep, mask.scale, p + head * S, used + head * W);
    } else {
      memcpy(used + head * W, p + head * S, n * sizeof(float));
    }
    softmax_backward(n, p + head * S, d);
    weighted_sum(d, n, E, window.rows(0, head), dq + head * E);
  }
  if (key_positions) {
    product(heads, n, E, ds, W, key_positions + older * PANEL, S * PANEL, {}, from_positions, E);
    add_scaled(heads * E, 1.f, from_positions, dq);
  }
  for (long i = 0; i < heads * E; i++) dq[i] *= block.scale;
}

// The same for attention to the encoder's output.
static void attend_encoder_backward(const Range& range, const TileArgs& tile, long l, long in_tile, const float* da,
                                    float* dq) {
  const BlockArgs& block = range.block;
  const LayerArgs& layer = block.layers[l];
  const long n = block.sources, E = block.E;
  const Mask mask = range.at(block.cross_mask, l, tile.first + in_tile, block.H * n);
  const float* p = range.by_head(block.record.cross_p, tile.at + in_tile, l, n);
  float* ds = range.by_head(tile.dcs, in_tile, l, n);
  for (long head = 0; head < range.heads; head++) {
    float* d = ds + head * n;
    dots(da + head * E, E, n, range.encoder(layer, 1, head), d);
    if (mask.keep) drop(n, mask.keep + head * n, mask.scale, d, d);
    softmax_backward(n, p + head * n, d);
    weighted_sum(d, n, E, range.encoder(layer, 0, head), dq + head * E);
  }
  for (long i = 0; i < range.heads * E; i++) dq[i] *= block.scale;
}

// The end of a sublayer: the gradient of what is added to the residual connection goes to d_out, after dropout. With
// post-norm dx goes back through the norm of the sum first. All are [streams, D].
static void residual_backward(const Range& range, Mask mask, Norm norm, const float* summed, float* d_norm,
                              float* d_out, float* dx) {
  const BlockArgs& block = range.block;
  const long size = range.streams * block.D;
  if (!block.pre_norm) {
    memcpy(d_norm, dx, size * sizeof(float));
    layer_norm_backward(range.streams, block.D, d_norm, summed, norm, block.eps, false, dx);
  }
  if (mask.keep) drop(size, mask.keep, mask.scale, dx, d_out);
  else memcpy(d_out, dx, size * sizeof(float));
}

// The beginning of a sublayer: the gradient dy [streams, width] of y = x W, through W, is added to dx [streams, D];
// with pre-norm through the norm of x too. panels: of the transpose of W.
static void input_backward(const Range& range, const float* dy, long width, const float* panels, Norm norm,
                           const float* x, float* d_norm, float* dx) {
  const BlockArgs& block = range.block;
  const long D = block.D;
  Epilogue epilogue;
  if (!block.pre_norm) epilogue.then = Then::add, epilogue.other = dx, epilogue.stride = D;
  product(range.streams, width, D, dy, width, panels, width * PANEL, epilogue,
          block.pre_norm ? d_norm : dx, D);
  if (block.pre_norm) layer_norm_backward(range.streams, D, d_norm, x, norm, block.eps, true, dx);
}

// From the gradient dx [streams, D] of a layer's output to that of its input, in place.
static void layer_backward(const Range& range, const TileArgs& tile, long l, long in_tile, float* dx, float* scratch) {
  const BlockArgs& block = range.block;
  const RecordArgs& record = block.record;
  const LayerArgs& layer = block.layers[l];
  const LayerTransposes& transposes = tile.transposes->layers[l];
  const long D = block.D, F = block.F, X = range.X, streams = range.streams;
  const long t = tile.first + in_tile, at = tile.at + in_tile;
  auto work = [&](float* x, long width) { return range.by_layer(x, tile.room, l, in_tile, width); };
  auto input = [&](float* pre, float* post) { return range.record(block.pre_norm ? pre : post, l, at, D); };

  // Feed-forward sublayer.
  const float* x = input(block.sources ? record.crossed_x : record.attended_x, record.ffn_sum);
  float *d_out = work(tile.d_ffn, D), *d_hidden = work(tile.d_hidden, F), *d_norm = work(tile.d_ffn_norm, D);
  residual_backward(range, range.at(block.ffn_residual_mask, l, t, D), layer.ffn_norm, x, d_norm, d_out, dx);
  const float* hidden = range.record(record.hidden, l, at, F);
  const Mask mask = range.at(block.hidden_mask, l, t, F);
  const bool plain = block.activation == Activation::relu && !mask.keep;
  Epilogue epilogue;
  if (plain) epilogue.then = Then::unless_zero, epilogue.other = hidden, epilogue.stride = F;
  product(streams, D, F, d_out, D, transposes.fc2, D * PANEL, epilogue, d_hidden, F);
  if (mask.keep) drop(streams * F, mask.keep, mask.scale, d_hidden, d_hidden);
  if (!plain) activate_backward(block.activation, streams * F, hidden, d_hidden);
  input_backward(range, d_hidden, F, transposes.fc1, layer.ffn_norm, x, d_norm, dx);

  // Attention to the encoder.
  if (block.sources) {
    x = input(record.attended_x, record.cross_sum);
    d_out = work(tile.d_crossed, D), d_norm = work(tile.d_cross_norm, D);
    float *da = range.by_step(tile.dca, in_tile, l, X), *dq = range.by_step(tile.dcq, in_tile, l, X);
    residual_backward(range, range.at(block.cross_residual_mask, l, t, D), layer.cross.norm, x, d_norm, d_out, dx);
    product(streams, D, X, d_out, D, transposes.cross_out, D * PANEL, {}, da, X);
    attend_encoder_backward(range, tile, l, in_tile, da, dq);
    input_backward(range, dq, X, transposes.cross_query, layer.cross.norm, x, d_norm, dx);
  }

  // Attention to the memory.
  x = input(record.x, record.attention_sum);
  d_out = work(tile.d_attention, D), d_norm = work(tile.d_attn_norm, D);
  float *da = range.by_step(tile.da, in_tile, l, X), *dq = range.by_step(tile.dq, in_tile, l, X);
  residual_backward(range, range.at(block.attention_residual_mask, l, t, D), layer.memory.norm, x, d_norm, d_out, dx);
  product(streams, D, X, d_out, D, transposes.out, D * PANEL, {}, da, X);
  attend_backward(range, tile, l, in_tile, da, dq, scratch);
  // Layer 1's queries depend on the embedding alone: they follow at the tile's end, all steps at once.
  if (l > 0) input_backward(range, dq, X, transposes.query, layer.memory.norm, x, d_norm, dx);
}
