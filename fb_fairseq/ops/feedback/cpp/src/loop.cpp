// The step loop over a block of the Feedback Transformer, and a step of decoding, for a range of their streams.
#include "backward.h"

// A step of decoding is a block of one step, whose slots, those of a ring, are kept between the calls.

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

extern "C" {

int64_t fb_vector_length() { return VL; }
int64_t fb_panel() { return PANEL; }
int64_t fb_scratch_size(const BlockArgs* block) { return scratch_size(*block); }

// Pack a matrix [inner, columns] whose entries are these strides apart.
void fb_pack(const float* matrix, int64_t inner, int64_t columns, int64_t row_stride, int64_t column_stride,
             float* out) {
  pack_matrix(matrix, inner, columns, row_stride, column_stride, out);
}

// Steps first … last - 1 for the streams first_stream … last_stream - 1, to the record from its first step on. With
// `again`, memories and slots are there already.
void fb_forward(const BlockArgs* args, int64_t first_stream, int64_t last_stream, int64_t first, int64_t last,
                int64_t again) {
  const BlockArgs& block = *args;
  const RecordArgs& record = block.record;
  const Range range(block, first_stream, last_stream);
  const long D = block.D, size = range.streams * D;
  float* scratch = range.scratch();
  for (long t = first; t < last; t++) {
    const long at = record.steps > 1 ? t - first : 0;
    memcpy(range.record(record.x, 0, at, D), range.by_layer(block.x, block.T, 0, t, D), size * sizeof(float));
    for (long l = 0; l < block.L; l++) run_layer(range, Window(range, l, t), l, t, at, scratch);
    if (again) continue;
    const float* top = range.record(record.x, block.L, at, D);
    if (block.out) memcpy(range.by_layer(block.out, block.T, 0, t, D), top, size * sizeof(float));
    mix_memories(range, t, at);
    if (t + 1 < block.T) project_memories(range, t, block.C + t, block.C + block.T, scratch);
  }
}

// The steps of a tile, from the last to the first.
void fb_backward(const BlockArgs* args, const TileArgs* tile_args, int64_t first_stream, int64_t last_stream) {
  const BlockArgs& block = *args;
  const TileArgs& tile = *tile_args;
  const Range range(block, first_stream, last_stream);
  const long D = block.D, size = range.streams * D;
  float *dx = range.scratch(), *scratch = dx + size;
  for (long in_tile = tile.steps - 1; in_tile >= 0; in_tile--) {
    const long t = tile.first + in_tile;
    memory_backward(range, tile, in_tile, scratch);
    memcpy(dx, range.by_layer(tile.d_out, block.T, 0, t, D), size * sizeof(float));
    for (long l = block.L; l >= 0; l--) {
      if (l < block.L) layer_backward(range, tile, l, in_tile, dx, scratch);
      for (long k = 0; k < block.K; k++) {
        const float weight = block.mix[k * (block.L + 1) + l];
        add_scaled(size, weight, range.by_layer(tile.d_memory, tile.room, k, in_tile, D), dx);
      }
    }
    memcpy(range.by_layer(tile.d_x, block.T, 0, t, D), dx, size * sizeof(float));
  }
  push_slots(range, tile, scratch);
}

// A step of decoding: its memories and the top layer's output, and its keys and values, written to the ring.
void fb_step(const BlockArgs* block, const RingArgs* ring, int64_t first_stream, int64_t last_stream) {
  decoding_step(Range(*block, first_stream, last_stream), *ring);
}
}
