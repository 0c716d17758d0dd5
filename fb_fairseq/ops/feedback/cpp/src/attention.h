// One query's attention over the n slots of one head. row(i) is where the vector [E] of slot i lies.
#pragma once
#include "vectors.h"

constexpr long ROWS_AHEAD = 32;  // rows are fetched into the cache this long before they are needed

INLINE void fetch_row(const float* row, long width) {
  for (long e = 0; e < width; e += LINE) __builtin_prefetch(row + e);
}

// out [n]: the products of q [E] with the rows.
template <class Row>
INLINE void dots(const float* q, long E, long n, Row row, float* out) {
  for (long i = 0; i < n; i += VL) {
    const float* rows[VL];
    Vec sums[VL];
#pragma GCC unroll 16
    for (int j = 0; j < VL; j++) {
      rows[j] = row(i + j < n ? i + j : n - 1);
      sums[j] = Vec{};
      if (i + j + ROWS_AHEAD < n) fetch_row(row(i + j + ROWS_AHEAD), E);
    }
    long e = 0;
    for (; e + VL <= E; e += VL) {
      const Vec value = load(q + e);
#pragma GCC unroll 16
      for (int j = 0; j < VL; j++) sums[j] += value * load(rows[j] + e);
    }
    if (e < E) {
      const Vec value = load_part(q + e, E - e);
#pragma GCC unroll 16
      for (int j = 0; j < VL; j++) sums[j] += value * load_part(rows[j] + e, E - e);
    }
    store_part(out + i, sums_of(sums), n - i);
  }
}

// Columns e … e + width - 1 of the sum; width: of PARTS vectors, or what is left of E.
template <int PARTS, class Row>
INLINE void weighted_part(const float* weights, long n, Row row, long e, long width, float* out) {
  Vec even[PARTS], odd[PARTS];  // the sums of rows with even and with odd numbers
  for (int part = 0; part < PARTS; part++) even[part] = odd[part] = Vec{};
  long i = 0;
  if (width == PARTS * VL) {
    for (; i + 2 <= n; i += 2) {
      const Vec even_weight = all(weights[i]), odd_weight = all(weights[i + 1]);
      const float *even_row = row(i) + e, *odd_row = row(i + 1) + e;
      if (i + 1 + ROWS_AHEAD < n) {
        fetch_row(row(i + ROWS_AHEAD) + e, PARTS * VL);
        fetch_row(row(i + 1 + ROWS_AHEAD) + e, PARTS * VL);
      }
#pragma GCC unroll 8
      for (int part = 0; part < PARTS; part++) {
        even[part] += even_weight * load(even_row + part * VL);
        odd[part] += odd_weight * load(odd_row + part * VL);
      }
    }
  }
  for (; i < n; i++)
    for (int part = 0; part < PARTS; part++)
      even[part] += all(weights[i]) * load_part(row(i) + e + part * VL, width - part * VL);
  for (int part = 0; part < PARTS; part++)
    store_part(out + e + part * VL, even[part] + odd[part], width - part * VL);
}

// out [E] = the sum of the rows with weights [n].
template <class Row>
INLINE void weighted_sum(const float* weights, long n, long E, Row row, float* out) {
  long e = 0;
  for (; e + 4 * VL <= E; e += 4 * VL) weighted_part<4>(weights, n, row, e, 4 * VL, out);
  for (; e < E; e += 2 * VL) weighted_part<2>(weights, n, row, e, E - e < 2 * VL ? E - e : 2 * VL, out);
}

// Rows [E] that lie `stride` floats apart.
struct Rows {
  const float* first;
  long stride;
  const float* operator()(long i) const { return first + i * stride; }
};

// The slots of n that a head does not see, and its weights of the others.
struct Visible {
  const float* log_mask = nullptr;   // [n]: added to the scores
  const uint8_t* outside = nullptr;  // [n]: zero weight; given with log_mask
  const uint8_t* padded = nullptr;   // [n]: of an encoder: a score of minus infinity
  long far = 0;                      // the first slots, which lie before the stream's episode: zero weight
};

// Stands for minus infinity where a span mask is zero, as in span_softmax.
constexpr float LOWEST = -3.4028234663852886e38f;

// scores [n] -> softmax, in place; they need no room behind them. As span_softmax, where an encoder is not padded: what
// the head does not see has no effect, and where it sees nothing, weights are zero. With an encoder of padding alone they
// are not numbers.
static void softmax(float* scores, long n, Visible seen) {
  if (seen.log_mask)
    for (long i = 0; i < n; i++) scores[i] = seen.outside[i] ? LOWEST : scores[i] + seen.log_mask[i];
  if (seen.padded) for (long i = 0; i < n; i++) scores[i] = seen.padded[i] ? -INFINITY : scores[i];
  const long far = seen.far < n ? seen.far : n;
  float top = highest(scores + far, n - far);
  if (far > 0 && top < LOWEST) top = LOWEST;
  Vec totals{};
  for (long i = far; i < n; i += VL) {
    Vec values = exp_of(load_part(scores + i, n - i) - top);
    if (n - i < VL)
      for (long lane = n - i; lane < VL; lane++) values[lane] = 0;
    totals += values;
    store_part(scores + i, values, n - i);
  }
  const float total = sum(totals), scale = total == 0 ? 1.f : 1.f / total;
  for (long i = 0; i < far; i++) scores[i] = 0;
  for (long i = 0; i < n; i++) scores[i] *= scale;
  if (seen.outside) for (long i = 0; i < n; i++) scores[i] *= seen.outside[i] ? 0.f : 1.f;
}
