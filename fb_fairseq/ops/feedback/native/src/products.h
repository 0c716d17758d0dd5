// Products of few rows with a matrix that is packed into panels: [columns / PANEL][K][PANEL], zeros at the end.
#pragma once
#include "vectors.h"

constexpr int PANEL = 2 * VL;

// Panels are read for a few rows only, and from a cache that is slow: they are fetched this many floats before.
constexpr long FETCH_AHEAD = 1024;

// What happens to a product before it is stored.
enum class Then { nothing, relu, add, where_positive };

struct Epilogue {
  const float* bias = nullptr;
  Then then = Then::nothing;
  const float* other = nullptr;  // what is added, or what must be positive: as the result, rows `stride` apart
  long stride = 0;
};

INLINE long panels(long columns) { return (columns + PANEL - 1) / PANEL; }

// R rows by one panel, of which `columns` columns are stored.
template <int R>
static void panel_product(long K, const float* x, long ldx, const float* panel, Epilogue e, float* out, long ldo, long columns) {
  Vec low[R], high[R];
  for (int r = 0; r < R; r++) low[r] = high[r] = Vec{};
  for (long k = 0; k < K; k++) {
    for (int line = 0; line < PANEL; line += LINE) __builtin_prefetch(panel + k * PANEL + FETCH_AHEAD + line);
    const Vec a = load(panel + k * PANEL), b = load(panel + k * PANEL + VL);
#pragma GCC unroll 16
    for (int r = 0; r < R; r++) {
      const Vec value = all(x[r * ldx + k]);
      low[r] += value * a;
      high[r] += value * b;
    }
  }
  const long rest = columns - VL;
  Vec bias_low{}, bias_high{};
  if (e.bias) bias_low = load_part(e.bias, columns), bias_high = load_part(e.bias + VL, rest);
#pragma GCC unroll 16
  for (int r = 0; r < R; r++) {
    Vec a = low[r] + bias_low, b = high[r] + bias_high;
    if (e.then == Then::relu) {
      a = a > Vec{} ? a : Vec{}, b = b > Vec{} ? b : Vec{};
    } else if (e.then != Then::nothing) {
      const float* other = e.other + r * e.stride;
      const Vec other_low = load_part(other, columns), other_high = load_part(other + VL, rest);
      if (e.then == Then::add) a += other_low, b += other_high;
      else a = other_low > Vec{} ? a : Vec{}, b = other_high > Vec{} ? b : Vec{};
    }
    store_part(out + r * ldo, a, columns);
    store_part(out + r * ldo + VL, b, rest);
  }
}

template <int R>
static void few_rows(long rows, long K, const float* x, long ldx, const float* panel, Epilogue e, float* out, long ldo, long columns) {
  if (rows == R) panel_product<R>(K, x, ldx, panel, e, out, ldo, columns);
  else if constexpr (R > 1) few_rows<R - 1>(rows, K, x, ldx, panel, e, out, ldo, columns);
}

// out [M, N] = x [M, K] W. `panel_size`: of W's panels; more than K x PANEL where only K of its rows are used.
static void product(long M, long K, long N, const float* x, long ldx, const float* w, long panel_size, Epilogue e, float* out, long ldo) {
  for (long n = 0; n < N; n += PANEL, w += panel_size) {
    Epilogue own = e;
    own.bias = e.bias ? e.bias + n : nullptr;
    own.other = e.other ? e.other + n : nullptr;
    const long columns = N - n < PANEL ? N - n : PANEL;
    long m = 0;
    for (; m + ROWS <= M; m += ROWS) {
      panel_product<ROWS>(K, x + m * ldx, ldx, w, own, out + m * ldo + n, ldo, columns);
      if (own.other) own.other += ROWS * e.stride;
    }
    if (m < M) few_rows<ROWS - 1>(M - m, K, x + m * ldx, ldx, w, own, out + m * ldo + n, ldo, columns);
  }
}

// The panels of a matrix [K, N] whose entry (k, n) is at W[k * row + n * column].
static void pack_matrix(const float* W, long K, long N, long row, long column, float* out) {
  for (long n = 0; n < N; n += PANEL, out += K * PANEL) {
    const long columns = N - n < PANEL ? N - n : PANEL;
    for (long k0 = 0; k0 < K; k0 += 16)  // so that the lines of cache that are read are used up
      for (long j = 0; j < PANEL; j++)
        for (long k = k0; k < K && k < k0 + 16; k++)
          out[k * PANEL + j] = j < columns ? W[k * row + (n + j) * column] : 0.f;
  }
}

// R rows of out += scale x^T y, of which `columns` columns, at most a panel, are used. x [K, R] has rows ldx apart, y ldy.
template <int R>
static void transposed_part(long K, const float* x, long ldx, const float* y, long ldy, float scale, float* out, long ldo, long columns) {
  Vec low[R], high[R];
  for (int r = 0; r < R; r++) low[r] = high[r] = Vec{};
  for (long k = 0; k < K; k++, x += ldx, y += ldy) {
    const Vec a = load_part(y, columns), b = load_part(y + VL, columns - VL);
#pragma GCC unroll 16
    for (int r = 0; r < R; r++) {
      const Vec value = all(x[r]);
      low[r] += value * a;
      high[r] += value * b;
    }
  }
  for (int r = 0; r < R; r++, out += ldo) {
    store_part(out, load_part(out, columns) + scale * low[r], columns);
    store_part(out + VL, load_part(out + VL, columns - VL) + scale * high[r], columns - VL);
  }
}

// out [M, N] += scale x^T y, of x [K, M] and y [K, N].
static void add_transposed_product(long M, long K, long N, const float* x, long ldx, const float* y, long ldy, float scale, float* out, long ldo) {
  for (long n = 0; n < N; n += PANEL) {
    const long columns = N - n < PANEL ? N - n : PANEL;
    long m = 0;
    for (; m + ROWS <= M; m += ROWS) transposed_part<ROWS>(K, x + m, ldx, y + n, ldy, scale, out + m * ldo + n, ldo, columns);
    for (; m < M; m++) transposed_part<1>(K, x + m, ldx, y + n, ldy, scale, out + m * ldo + n, ldo, columns);
  }
}
