// A step of decoding, on a ring of slots: a block of one step, whose slots are kept between the calls.
#pragma once
#include "forward.h"

// The slots of a ring that a layer sees, oldest first. (As `Window`, of a block.)
struct RingWindow {
  const Range& range;
  const BlockArgs& block;
  const RingArgs& ring;
  const LayerArgs& layer;
  const long filled, n, first;  // filled: slots that hold a step; n: those that the layer sees, from `first` on

  RingWindow(const Range& range, const RingArgs& ring, long l)
      : range(range), block(range.block), ring(ring), layer(block.layers[l]),
        filled(ring.position < ring.span ? ring.position : ring.span), n(filled < layer.reach ? filled : layer.reach),
        first((filled < ring.span ? 0 : ring.position % ring.span) + filled - n) {}

  auto rows(int side, long head) const {
    const long stream = range.first + head / block.H, head_in_stream = head % block.H;
    const float* slots = block.sets[layer.set].slots[side];
    const int32_t* origin = ring.origin ? ring.origin + stream * ring.slots : nullptr;
    const long first = this->first, filled = this->filled, H = block.H, E = block.E, ring_slots = ring.slots;
    return [=](long i) {
      long slot = first + i;
      if (slot >= filled) slot -= filled;
      const long from = origin ? origin[slot] : stream;
      return slots + ((from * H + head_in_stream) * ring_slots + slot) * E;
    };
  }
  Visible seen(long head) const {
    Visible seen = range.seen_by_span(layer, head, n);
    if (ring.age) {
      const long age = ring.age[range.first + head / block.H];
      seen.far = n > age ? n - age : 0;
    }
    return seen;
  }
  Mask mask() const { return {nullptr, 1.f}; }
};

static void decoding_step(const Range& range, const RingArgs& ring) {
  const BlockArgs& block = range.block;
  const RecordArgs& record = block.record;
  const long D = block.D, size = range.streams * D;
  float* scratch = range.scratch();
  memcpy(range.record(record.x, 0, 0, D), range.by_layer(block.x, 1, 0, 0, D), size * sizeof(float));
  for (long l = 0; l < block.L; l++) run_layer(range, RingWindow(range, ring, l), l, 0, 0, scratch);
  memcpy(range.by_layer(block.out, 1, 0, 0, D), range.record(record.x, block.L, 0, D), size * sizeof(float));
  mix_memories(range, 0, 0);
  const long slot = ring.position % ring.span;
  project_memories(range, 0, slot, ring.slots, scratch);
  if (ring.origin)
    for (long b = range.first; b < range.first + range.streams; b++) ring.origin[b * ring.slots + slot] = b;
}
