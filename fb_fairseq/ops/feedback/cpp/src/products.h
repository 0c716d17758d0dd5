// Products of few rows with a matrix that is packed into panels: [columns / PANEL, inner, PANEL], zeros at the end. All
// matrices that are not packed have rows a stride apart.
#pragma once
#include "vectors.h"

constexpr int PANEL = 2 * VL;

// Panels are read for a few rows only, and from a cache that is slow: they are fetched this many floats before.
constexpr long FETCH_AHEAD = 1024;

// The operations on a product before it is stored.
enum class Then { nothing, relu, add, unless_zero };

struct Epilogue {
  const float* bias = nullptr;   // [columns]
  Then then = Then::nothing;
  const float* other = nullptr;  // [rows, columns], `stride` apart: what is added, or a ReLU's result
  long stride = 0;
};

// R rows of out = x W, by one panel [inner, PANEL], of which `columns` columns are stored. x: [R, inner].
template <int R>
static void panel_product(long inner, const float* x, long x_stride, const float* panel, Epilogue epilogue, float* out,
                          long out_stride, long columns) {
  Vec low[R], high[R];
  for (int r = 0; r < R; r++) low[r] = high[r] = Vec{};
  for (long i = 0; i < inner; i++) {
    for (int line = 0; line < PANEL; line += LINE) __builtin_prefetch(panel + i * PANEL + FETCH_AHEAD + line);
    const Vec panel_low = load(panel + i * PANEL), panel_high = load(panel + i * PANEL + VL);
#pragma GCC unroll 16
    for (int r = 0; r < R; r++) {
      const Vec value = all(x[r * x_stride + i]);
      low[r] += value * panel_low;
      high[r] += value * panel_high;
    }
  }
  const long rest = columns - VL;
  Vec bias_low{}, bias_high{};
  if (epilogue.bias) bias_low = load_part(epilogue.bias, columns), bias_high = load_part(epilogue.bias + VL, rest);
#pragma GCC unroll 16
  for (int r = 0; r < R; r++) {
    Vec result_low = low[r] + bias_low, result_high = high[r] + bias_high;
    if (epilogue.then == Then::relu) {
      result_low = result_low <= Vec{} ? Vec{} : result_low, result_high = result_high <= Vec{} ? Vec{} : result_high;
    } else if (epilogue.then != Then::nothing) {
      const float* other = epilogue.other + r * epilogue.stride;
      const Vec other_low = load_part(other, columns), other_high = load_part(other + VL, rest);
      if (epilogue.then == Then::add) result_low += other_low, result_high += other_high;
      else result_low = other_low <= Vec{} ? Vec{} : result_low, result_high = other_high <= Vec{} ? Vec{} : result_high;
    }
    store_part(out + r * out_stride, result_low, columns);
    store_part(out + r * out_stride + VL, result_high, rest);
  }
}

// The same for `rows` rows, at most R.
template <int R>
static void few_rows(long rows, long inner, const float* x, long x_stride, const float* panel, Epilogue epilogue,
                     float* out, long out_stride, long columns) {
  if (rows == R) panel_product<R>(inner, x, x_stride, panel, epilogue, out, out_stride, columns);
  else if constexpr (R > 1) few_rows<R - 1>(rows, inner, x, x_stride, panel, epilogue, out, out_stride, columns);
}

// out [rows, columns] = x [rows, inner] W. `panel_size`: of W's panels; more than inner x PANEL where W has more rows
// than are used.
static void product(long rows, long inner, long columns, const float* x, long x_stride, const float* panels,
                    long panel_size, Epilogue epilogue, float* out, long out_stride) {
  for (long column = 0; column < columns; column += PANEL, panels += panel_size) {
    Epilogue own = epilogue;
    own.bias = epilogue.bias ? epilogue.bias + column : nullptr;
    own.other = epilogue.other ? epilogue.other + column : nullptr;
    const long stored = columns - column < PANEL ? columns - column : PANEL;
    float* part = out + column;
    long row = 0;
    for (; row + ROWS <= rows; row += ROWS) {
      panel_product<ROWS>(inner, x + row * x_stride, x_stride, panels, own, part + row * out_stride, out_stride,
                          stored);
      if (own.other) own.other += ROWS * epilogue.stride;
    }
    if (row < rows)
      few_rows<ROWS - 1>(rows - row, inner, x + row * x_stride, x_stride, panels, own, part + row * out_stride,
                         out_stride, stored);
  }
}

// out = the panels of a matrix [inner, columns] whose entry (i, j) is at matrix[i * row_stride + j * column_stride].
static void pack_matrix(const float* matrix, long inner, long columns, long row_stride, long column_stride,
                        float* out) {
  for (long first = 0; first < columns; first += PANEL, out += inner * PANEL) {
    const long used = columns - first < PANEL ? columns - first : PANEL;
    for (long chunk = 0; chunk < inner; chunk += 16)  // so that the lines of cache that are read are used up
      for (long j = 0; j < PANEL; j++)
        for (long i = chunk; i < inner && i < chunk + 16; i++)
          out[i * PANEL + j] = j < used ? matrix[i * row_stride + (first + j) * column_stride] : 0.f;
  }
}

// R rows of out += scale x^T y, for x [inner, R] and y [inner, columns]; at most a panel of columns.
template <int R>
static void transposed_part(long inner, const float* x, long x_stride, const float* y, long y_stride, float scale,
                            float* out, long out_stride, long columns) {
  Vec low[R], high[R];
  for (int r = 0; r < R; r++) low[r] = high[r] = Vec{};
  for (long i = 0; i < inner; i++, x += x_stride, y += y_stride) {
    const Vec y_low = load_part(y, columns), y_high = load_part(y + VL, columns - VL);
#pragma GCC unroll 16
    for (int r = 0; r < R; r++) {
      const Vec value = all(x[r]);
      low[r] += value * y_low;
      high[r] += value * y_high;
    }
  }
  for (int r = 0; r < R; r++, out += out_stride) {
    store_part(out, load_part(out, columns) + scale * low[r], columns);
    store_part(out + VL, load_part(out + VL, columns - VL) + scale * high[r], columns - VL);
  }
}

// out [rows, columns] += scale x^T y, of x [inner, rows] and y [inner, columns].
static void add_transposed_product(long rows, long inner, long columns, const float* x, long x_stride, const float* y,
                                   long y_stride, float scale, float* out, long out_stride) {
  for (long column = 0; column < columns; column += PANEL) {
    const long used = columns - column < PANEL ? columns - column : PANEL;
    float* part = out + column;
    long row = 0;
    for (; row + ROWS <= rows; row += ROWS)
      transposed_part<ROWS>(inner, x + row, x_stride, y + column, y_stride, scale, part + row * out_stride, out_stride,
                            used);
    for (; row < rows; row++)
      transposed_part<1>(inner, x + row, x_stride, y + column, y_stride, scale, part + row * out_stride, out_stride,
                         used);
  }
}
