// What a call works on, and the places of a range of streams in it. Structures as in library.py.
//
// The names of the tensors and the letters of their shapes are those of forward.py, backward.py and tile.py in the
// folder above. All is fp32 and contiguous, masks are bytes. Streams are independent of each other: threads that work on
// different ranges share nothing that is written.
#pragma once
#include "attention.h"
#include "products.h"
#include "rows.h"

struct Matrix {  // packed
  const float *panels, *bias;
};

struct AttentionArgs {  // an attention's projections, and with pre-norm the norm before it, else the norm after it
  Matrix query, out;
  Matrix query_t, out_t;  // transposed, for the backward pass
  Norm norm;
};

struct LayerArgs {
  AttentionArgs memory, cross;
  Matrix fc1, fc2, fc1_t, fc2_t;
  Norm ffn_norm;
  const float* log_mask;                              // [H, reach], newest last; null without adaptive spans
  const uint8_t* outside;                             // [H, reach]
  const float* encoder[2];                            // keys and values of its output, [sentences x H, sources, E]
  int64_t reach, active, set;
};

struct SetArgs {  // a set of keys and values
  Matrix project, project_t;
  Norm norm;                   // null without a norm
  float* slots[2];             // keys and values, [G, C + T, E]
  int64_t memory;
};

struct Mask {  // of dropout; null: nothing is dropped
  const uint8_t* keep;
  float scale;
};

struct BlockArgs {
  // sources: slots of the encoder; 0 without one. rows_per_source: consecutive streams that share them.
  int64_t T, B, D, L, H, E, F, K, C, S, I, sources, rows_per_source, record_steps;
  int64_t pre_norm, mask_slots;  // mask_slots: last dimension of the mask of attention to the memory
  Activation activation;
  int64_t alignment_layer, alignment_heads;
  float scale, eps;
  const LayerArgs* layers;
  const SetArgs* sets;
  const float* mix;                                  // [K, L + 1]
  const float *key_positions, *value_positions;      // packed [E, S], [S, E]
  const float *key_positions_t, *value_positions_t;  // packed [S, E], [E, S]
  const float *x, *first_query;                      // [T, B, D]; layer 1's queries [T, B, X], or null
  float *x_ATBD, *attended_x, *q, *a, *p, *hidden, *attention_sum, *ffn_sum;  // the record
  float *crossed_x, *cross_q, *cross_a, *cross_p, *cross_sum;
  float *memory, *out, *aligned;                     // [K, T, B, D]; [T, B, D] or null; [T, B, sources] or null
  Mask attention_mask, hidden_mask, attention_residual_mask, ffn_residual_mask, cross_mask, cross_residual_mask;
  const int64_t* reach;                              // [T, B], or null
  const uint8_t* padding;                            // [B, sources], or null
  float* scratch;
};

struct RingArgs {  // the memory of decoding; its keys and values are the rows of the sets, [streams, H, slots, E]
  int64_t slots, span, position;  // position: steps seen so far; step t is in slot t mod span
  int32_t* origin;                // [B, slots]: the stream whose slot a stream looks at; null: its own
  const int64_t* age;             // [B]: steps of the stream's episode; null: all
};

struct TileArgs {
  int64_t first, steps, at, tile_steps, W;
  const float* d_out;
  float *d_x, *dq, *da, *d_attention, *d_ffn, *d_hidden, *d_attn_norm, *d_ffn_norm;
  float *dcq, *dca, *d_crossed, *d_cross_norm, *dcs;
  float *d_kv, *d_kv_normed, *d_memory, *ds;
  float* p_slots;  // [tile steps, L, G, W]
  float* d_slots;  // [2, I, G, C + T, E]
};

// Floats of scratch memory that a stream needs.
INLINE long scratch_size(const BlockArgs& c) {
  const long X = c.H * c.E, slots = c.S > c.sources ? c.S : c.sources, attention = 2 * c.H * slots + X;
  const long needs[] = {attention, c.F, c.D + 2 * X, 2 * c.D, c.T * c.L * c.E};
  long size = 0;
  for (long need : needs) size = need > size ? need : size;
  return size + c.D;
}

// Sizes and places of a range of streams.
struct Range {
  const BlockArgs& c;
  const long b0, n, X, G, heads;

  Range(const BlockArgs& c, long b0, long b1) : c(c), b0(b0), n(b1 - b0), X(c.H * c.E), G(c.B * c.H), heads((b1 - b0) * c.H) {}

  // Of tensors [layer, step, B, width] and [step, layer, B, width], the range's first row.
  template <class T> T* by_layer(T* x, long steps, long l, long t, long width) const {
    return x + ((l * steps + t) * c.B + b0) * width;
  }
  template <class T> T* by_step(T* x, long t, long l, long width) const { return x + ((t * c.L + l) * c.B + b0) * width; }
  float* record(float* x, long l, long at, long width) const { return by_layer(x, c.record_steps, l, at, width); }
  float* scratch() const { return c.scratch + b0 * scratch_size(c); }

  // A layer's slots at a step: how many it sees, and the keys or values of a head of this range, oldest first.
  long window(const LayerArgs& layer, long t) const { return c.C + t < layer.reach ? c.C + t : layer.reach; }
  Rows window(const LayerArgs& layer, int side, long t, long head) const {
    const long first = c.C + t - window(layer, t);
    return {c.sets[layer.set].slots[side] + ((b0 * c.H + head) * (c.C + c.T) + first) * c.E, c.E};
  }
  // The same of the encoder's output.
  Rows encoder(const LayerArgs& layer, int side, long head) const {
    return {layer.encoder[side] + (sentence(head) * c.H + head % c.H) * c.sources * c.E, c.E};
  }
  long sentence(long head) const { return (b0 + head / c.H) / c.rows_per_source; }

  Visible seen(const LayerArgs& layer, long t, long head, long n) const {
    Visible v;
    if (layer.log_mask) {
      const long at = head % c.H * layer.reach + layer.reach - n;
      v.log_mask = layer.log_mask + at, v.outside = layer.outside + at;
    }
    if (c.reach) {
      const long reach = c.reach[t * c.B + b0 + head / c.H];
      v.far = n > reach ? n - reach : 0;
    }
    return v;
  }
  Visible seen_of_encoder(long head) const {
    Visible v;
    if (c.padding) v.padded = c.padding + sentence(head) * c.sources;
    return v;
  }
  // Of a mask [L, T, B, width], a layer's rows at a step.
  Mask at(const Mask& mask, long l, long t, long width) const {
    return {mask.keep ? mask.keep + ((l * c.T + t) * c.B + b0) * width : nullptr, mask.scale};
  }
};
