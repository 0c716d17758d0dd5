// Where the numbers of a range of streams lie.
//
// Streams are independent of each other: threads that work on different ranges share nothing that is written. In what
// follows `l` is a layer's index, `t` a step of the block, and `at` its place in the record. `head` counts the heads of
// all streams of the range.
#pragma once
#include "arguments.h"
#include "attention.h"

// Floats of scratch memory that a stream needs: the most that is taken at once. Forward: for attention to the memory and
// to the encoder, the hidden layer, and the norm, keys and values of a memory. Backward, beside the gradient of a
// layer's output: for the gradients of memories, of attention, and of earlier keys and values.
INLINE long scratch_size(const BlockArgs& block) {
  const long H = block.H, S = block.S, E = block.E, X = H * E, D = block.D;
  const long needs[] = {
      2 * H * S, block.sources, block.F, D + 2 * X, D + D, D + H * S + X, D + block.T * block.L * E,
  };
  long size = 0;
  for (long need : needs) size = need > size ? need : size;
  return size;
}

struct Range {
  const BlockArgs& block;
  const long first, streams;  // the first stream, and how many
  const long X, G, heads;     // heads: of these streams

  Range(const BlockArgs& block, long first, long last)
      : block(block), first(first), streams(last - first), X(block.H * block.E), G(block.B * block.H),
        heads(streams * block.H) {}

  // The range's first row: of a tensor [layer, step, B, width], ...
  template <class T> T* by_layer(T* x, long steps, long l, long t, long width) const {
    return x + ((l * steps + t) * block.B + first) * width;
  }
  // ... of a tensor [step, L, B, width], ...
  template <class T> T* by_step(T* x, long t, long l, long width) const {
    return x + ((t * block.L + l) * block.B + first) * width;
  }
  // ... of a tensor [step, L, G, width], ...
  template <class T> T* by_head(T* x, long t, long l, long width) const {
    return x + ((t * block.L + l) * G + first * block.H) * width;
  }
  // ... of a tensor of the record [layer, step, B, width], ...
  float* record(float* x, long l, long at, long width) const { return by_layer(x, block.record.steps, l, at, width); }
  // ... and of a dropout mask [L, T, B, width].
  Mask at(const Mask& mask, long l, long t, long width) const {
    return {mask.keep ? by_layer(mask.keep, block.T, l, t, width) : nullptr, mask.scale};
  }

  float* scratch() const { return block.scratch + first * scratch_size(block); }

  // The sentence of the encoder that a head's stream attends to, the keys (side 0) or values of that sentence, and what
  // of them is padding.
  long sentence(long head) const { return (first + head / block.H) / block.rows_per_source; }
  Rows encoder(const LayerArgs& layer, int side, long head) const {
    return {layer.encoder[side] + (sentence(head) * block.H + head % block.H) * block.sources * block.E, block.E};
  }
  Visible seen_of_encoder(long head) const {
    Visible seen;
    if (block.padding) seen.padded = block.padding + sentence(head) * block.sources;
    return seen;
  }

  // Of the last `n` slots, what a head sees of them by its adaptive span.
  Visible seen_by_span(const LayerArgs& layer, long head, long n) const {
    Visible seen;
    if (!layer.log_mask) return seen;
    const long column = head % block.H * layer.reach + layer.reach - n;
    seen.log_mask = layer.log_mask + column, seen.outside = layer.outside + column;
    return seen;
  }
};

// The slots of a block that a layer sees at a step, oldest first.
struct Window {
  const Range& range;
  const BlockArgs& block;
  const LayerArgs& layer;
  const long l, t, n;  // n: number of slots

  Window(const Range& range, long l, long t)
      : range(range), block(range.block), layer(block.layers[l]), l(l), t(t),
        n(block.C + t < layer.reach ? block.C + t : layer.reach) {}

  // The keys (side 0) or values of a head.
  Rows rows(int side, long head) const {
    const long first = block.C + t - n, head_in_block = range.first * block.H + head;
    return {block.sets[layer.set].slots[side] + (head_in_block * (block.C + block.T) + first) * block.E, block.E};
  }
  Visible seen(long head) const {
    Visible seen = range.seen_by_span(layer, head, n);
    if (block.age) {
      const long age = block.age[t * block.B + range.first + head / block.H];
      seen.far = n > age ? n - age : 0;
    }
    return seen;
  }
  // The dropout mask of the attention weights.
  Mask mask() const { return range.at(block.attention_mask, l, t, block.H * block.mask_slots); }
};
