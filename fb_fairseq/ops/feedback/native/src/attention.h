// One query's attention over consecutive slots of one head.
//
// Slots are kept twice: as rows [slots][E], for sums of vectors; and in panels [slots / VL][E][VL], for products of the
// query with VL slots at a time.
#pragma once
#include "vectors.h"

INLINE long slot_panels(long slots) { return (slots + VL - 1) / VL; }

// Write a vector to a slot of one head. Without panels (null) to the rows only.
INLINE void write_slot(const float* vector, long slot, long E, float* rows, float* panels) {
  memcpy(rows + slot * E, vector, E * sizeof(float));
  if (!panels) return;
  float* panel = panels + slot / VL * E * VL + slot % VL;
  for (long e = 0; e < E; e++) panel[e * VL] = vector[e];
}

template <int P>
INLINE void dots_of_panels(const float* q, const float* panel, long E, float* out) {
  Vec total[P];
  for (int p = 0; p < P; p++) total[p] = Vec{};
  for (long e = 0; e < E; e++) {
    const Vec value = all(q[e]);
#pragma GCC unroll 8
    for (int p = 0; p < P; p++) total[p] += value * load(panel + (p * E + e) * VL);
  }
  for (int p = 0; p < P; p++) store(out + p * VL, total[p]);
}

// out[i] = q . slot first + i, for n slots. `out` has room for the whole panels that the slots lie in; returns where in
// it the first slot's value is.
static const float* dots(const float* q, const float* panels, long E, long first, long n, float* out) {
  const long begin = first / VL, end = slot_panels(first + n);
  const float* panel = panels + begin * E * VL;
  long p = begin;
  float* result = out;
  for (; p + 4 <= end; p += 4, panel += 4 * E * VL, out += 4 * VL) dots_of_panels<4>(q, panel, E, out);
  for (; p < end; p++, panel += E * VL, out += VL) dots_of_panels<1>(q, panel, E, out);
  return result + first % VL;
}

template <int P>
INLINE void weighted_part(const float* weights, const float* rows, long stride, long n, long width, float* out) {
  Vec total[P], other[P];
  for (int p = 0; p < P; p++) total[p] = other[p] = Vec{};
  long i = 0;
  if (width == P * VL) {
    for (; i + 2 <= n; i += 2, rows += 2 * stride) {
      const Vec a = all(weights[i]), b = all(weights[i + 1]);
#pragma GCC unroll 8
      for (int p = 0; p < P; p++) {
        total[p] += a * load(rows + p * VL);
        other[p] += b * load(rows + stride + p * VL);
      }
    }
  }
  for (; i < n; i++, rows += stride) {
    const Vec a = all(weights[i]);
    for (int p = 0; p < P; p++) total[p] += a * load_part(rows + p * VL, width - p * VL);
  }
  for (int p = 0; p < P; p++) store_part(out + p * VL, total[p] + other[p], width - p * VL);
}

// out [E] = the sum of n rows, `stride` apart, with these weights.
static void weighted_sum(const float* weights, const float* rows, long stride, long n, long E, float* out) {
  long e = 0;
  for (; e + 4 * VL <= E; e += 4 * VL) weighted_part<4>(weights, rows + e, stride, n, 4 * VL, out + e);
  for (; e < E; e += 2 * VL) weighted_part<2>(weights, rows + e, stride, n, E - e < 2 * VL ? E - e : 2 * VL, out + e);
}

// The same for slots that are there as rows only. row(i) is where slot i's vector lies.
template <class Row>
static void dots_of_rows(const float* q, long E, long n, Row row, float* out) {
  long i = 0;
  for (; i + 4 <= n; i += 4) {
    const float *a = row(i), *b = row(i + 1), *c = row(i + 2), *d = row(i + 3);
    Vec sums[4] = {};
    for (long e = 0; e < E; e += VL) {
      const Vec value = load_part(q + e, E - e);
      sums[0] += value * load_part(a + e, E - e), sums[1] += value * load_part(b + e, E - e);
      sums[2] += value * load_part(c + e, E - e), sums[3] += value * load_part(d + e, E - e);
    }
    for (int j = 0; j < 4; j++) out[i + j] = sum(sums[j]);
  }
  for (; i < n; i++) {
    Vec total{};
    for (long e = 0; e < E; e += VL) total += load_part(q + e, E - e) * load_part(row(i) + e, E - e);
    out[i] = sum(total);
  }
}

// out [E] = the sum of n rows with these weights; row(i) is where row i lies.
template <class Row>
static void weighted_sum_of_rows(const float* weights, long n, long E, Row row, float* out) {
  for (long e = 0; e < E; e += 4 * VL) {
    Vec total[4] = {};
    for (long i = 0; i < n; i++) {
      const Vec weight = all(weights[i]);
      const float* x = row(i) + e;
      for (int p = 0; p < 4; p++) total[p] += weight * load_part(x + p * VL, E - e - p * VL);
    }
    for (int p = 0; p < 4; p++) store_part(out + e + p * VL, total[p], E - e - p * VL);
  }
}

// What a head does not see of its n slots, and how much it sees of the others.
struct Visible {
  const float* log_mask = nullptr;     // added to the scores
  const uint8_t* outside = nullptr;    // zero weight; their scores are low already
  const uint8_t* padded = nullptr;     // zero weight
  long far = 0;                        // the first slots, which lie before the stream's episode: zero weight
};

// scores -> softmax, in place; the n values of `scores` need no room behind them.
static void softmax(float* scores, long n, Visible seen) {
  float top = -INFINITY;
  if (seen.log_mask) for (long i = 0; i < n; i++) scores[i] += seen.log_mask[i];
  if (seen.padded) for (long i = 0; i < n; i++) scores[i] = seen.padded[i] ? -INFINITY : scores[i];
  const long far = seen.far < n ? seen.far : n;
  for (long i = far; i < n; i++) top = scores[i] > top ? scores[i] : top;
  Vec total{};
  for (long i = far; i < n; i += VL) {
    Vec v = exp_of(load_part(scores + i, n - i) - top);
    if (n - i < VL)
      for (long lane = n - i; lane < VL; lane++) v[lane] = 0;
    total += v;
    store_part(scores + i, v, n - i);
  }
  const float scale = far < n ? 1.f / sum(total) : 0.f;
  for (long i = 0; i < far; i++) scores[i] = 0;
  for (long i = far; i < n; i++) scores[i] *= scale;
  for (const uint8_t* zero : {seen.outside, seen.padded})
    if (zero) for (long i = 0; i < n; i++) scores[i] = zero[i] ? 0.f : scores[i];
}
