// The step loop over a block of the Feedback Transformer, and a step of decoding, for a range of their streams.
#include "backward.h"
#include "step.h"

extern "C" {

int64_t fb_vector_length() { return VL; }
int64_t fb_panel() { return PANEL; }
int64_t fb_scratch_size(const BlockArgs* args) { return scratch_size(*args); }

void fb_pack(const float* W, int64_t K, int64_t N, int64_t row, int64_t column, float* out) { pack_matrix(W, K, N, row, column, out); }

// Steps first … last - 1, to the record from its first step on. With `again`, memories and slots are there already.
void fb_forward(const BlockArgs* args, int64_t b0, int64_t b1, int64_t first, int64_t last, int64_t again) {
  const BlockArgs& c = *args;
  const Range r(c, b0, b1);
  float* scratch = r.scratch();
  for (long t = first; t < last; t++) {
    const long place = c.record_steps > 1 ? t - first : 0;
    memcpy(r.record(c.x_ATBD, 0, place, c.D), c.x + (t * c.B + b0) * c.D, r.n * c.D * sizeof(float));
    for (long l = 0; l < c.L; l++) {
      auto attend_memory = [&](const float* q, float* p, float* a, float* room) { attend(r, l, t, q, p, a, room); };
      run_layer(r, l, t, place, attend_memory, scratch);
    }
    if (again) continue;
    if (c.out) memcpy(c.out + (t * c.B + b0) * c.D, r.record(c.x_ATBD, c.L, place, c.D), r.n * c.D * sizeof(float));
    mix_memories(r, t, place);
    if (t + 1 < c.T) project_memories(r, t, c.C + t, c.C + c.T, scratch);
  }
}

// The steps of a tile, from the last to the first.
void fb_backward(const BlockArgs* args, const TileArgs* tile, int64_t b0, int64_t b1) {
  const BlockArgs& c = *args;
  const TileArgs& k = *tile;
  const Range r(c, b0, b1);
  const long size = r.n * c.D;
  float *dx = r.scratch(), *scratch = dx + size;
  for (long i = k.steps - 1; i >= 0; i--) {
    const long t = k.first + i;
    memory_backward(r, k, i, scratch);
    memcpy(dx, k.d_out + (t * c.B + b0) * c.D, size * sizeof(float));
    for (long l = c.L; l >= 0; l--) {
      if (l < c.L && c.layers[l].active) layer_backward(r, k, l, i, dx, scratch);
      for (long m = 0; m < c.K; m++) {
        const float weight = c.mix[m * (c.L + 1) + l];
        if (weight != 0) add_scaled(size, weight, r.by_layer(k.d_memory, k.tile_steps, m, i, c.D), dx);
      }
    }
    memcpy(k.d_x + (t * c.B + b0) * c.D, dx, size * sizeof(float));
  }
  push_slots(r, k, scratch);
}

// A step of decoding: its memories and the top layer's output, and its keys and values, written to the ring.
void fb_step(const BlockArgs* args, const RingArgs* ring, int64_t b0, int64_t b1) { decoding_step(Range(*args, b0, b1), *ring); }
}
