// A step of decoding, on a ring of slots: a block of one step, whose slots are kept between the calls, as rows.
#pragma once
#include "forward.h"

// The slots of a ring that a step sees, oldest first.
struct Ring {
  const RingArgs& ring;
  const long H, E, n, oldest;

  Ring(const RingArgs& ring, const BlockArgs& c)
      : ring(ring), H(c.H), E(c.E), n(ring.position < ring.span ? ring.position : ring.span),
        oldest(ring.position < ring.span ? 0 : ring.position % ring.span) {}

  // Of one head of a stream, in the keys or values of a set.
  auto rows(const float* slots, long stream, long head) const {
    const int32_t* origin = ring.origin ? ring.origin + stream * ring.slots : nullptr;
    return [=](long i) {
      long slot = oldest + i;
      if (slot >= n) slot -= n;
      const long from = origin ? origin[slot] : stream;
      return slots + ((from * H + head) * ring.slots + slot) * E;
    };
  }
};

// a = attention of the queries q to the slots; the weights go to p [heads, S], newest last.
static void attend_ring(const Range& r, const Ring& ring, long l, const float* q, float* p, float* a, float* scratch) {
  const BlockArgs& c = r.c;
  const LayerArgs& layer = c.layers[l];
  const SetArgs& set = c.sets[layer.set];
  const long n = ring.n < layer.reach ? ring.n : layer.reach, skipped = ring.n - n, older = c.S - n;
  if (n == 0) {
    memset(a, 0, r.n * r.X * sizeof(float));
    return;
  }
  float* by_position = scratch;
  if (c.key_positions) by_distance(r.heads, c, n, q, c.key_positions, by_position);
  for (long head = 0; head < r.heads; head++) {
    const long stream = r.b0 + head / c.H, h = head % c.H;
    const auto keys = ring.rows(set.slots[0], stream, h), values = ring.rows(set.slots[1], stream, h);
    float *weights = p + head * c.S + older, *position = by_position + head * c.S + older;
    dots(q + head * c.E, c.E, n, [&](long i) { return keys(skipped + i); }, weights);
    scale_scores(n, c.scale, c.key_positions ? position : nullptr, weights);
    Visible seen = r.seen(layer, 0, head, n);
    if (ring.ring.age) seen.far = n > ring.ring.age[stream] ? n - ring.ring.age[stream] : 0;
    softmax(weights, n, seen);
    weighted_sum(weights, n, c.E, [&](long i) { return values(skipped + i); }, a + head * c.E);
  }
  if (c.value_positions) add_value_positions(r.heads, c, n, p, a);
}

static void decoding_step(const Range& r, const RingArgs& args) {
  const BlockArgs& c = r.c;
  const Ring ring(args, c);
  float* scratch = r.scratch();
  memcpy(r.record(c.x_ATBD, 0, 0, c.D), c.x + r.b0 * c.D, r.n * c.D * sizeof(float));
  for (long l = 0; l < c.L; l++) {
    auto attend_memory = [&](const float* q, float* p, float* a, float* room) { attend_ring(r, ring, l, q, p, a, room); };
    run_layer(r, l, 0, 0, attend_memory, scratch);
  }
  memcpy(c.out + r.b0 * c.D, r.record(c.x_ATBD, c.L, 0, c.D), r.n * c.D * sizeof(float));
  mix_memories(r, 0, 0);
  const long slot = args.position % args.span;
  project_memories(r, 0, slot, args.slots, scratch);
  if (args.origin)
    for (long b = r.b0; b < r.b0 + r.n; b++) args.origin[b * args.slots + slot] = b;
}
