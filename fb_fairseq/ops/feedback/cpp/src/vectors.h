// Vectors of VL floats, through the vector extensions of GCC and Clang: as wide as the registers that the compiler is
// told to use. On other processors the compiler makes them of what there is.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>
#include <initializer_list>

#if defined(__AVX512F__)
constexpr int VL = 16;
constexpr int ROWS = 8;  // rows of a product at a time: their sums fill the registers
#define EVEN 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30
#define ODD 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31
#elif defined(__AVX__)
constexpr int VL = 8;
constexpr int ROWS = 6;
#define EVEN 0, 2, 4, 6, 8, 10, 12, 14
#define ODD 1, 3, 5, 7, 9, 11, 13, 15
#else
constexpr int VL = 4;
constexpr int ROWS = 4;
#define EVEN 0, 2, 4, 6
#define ODD 1, 3, 5, 7
#endif
constexpr int LINE = 16;  // floats in a line of the cache

typedef float Vec __attribute__((vector_size(sizeof(float) * VL)));
typedef float Unaligned __attribute__((vector_size(sizeof(float) * VL), aligned(4), may_alias));
typedef int32_t Ints __attribute__((vector_size(sizeof(float) * VL)));

#define INLINE static inline __attribute__((always_inline))

INLINE Vec load(const float* from) { return *(const Unaligned*)from; }
INLINE void store(float* to, Vec values) { *(Unaligned*)to = values; }
INLINE Vec all(float x) { return Vec{} + x; }

// The first n values, and zeros; n may be more than VL, or negative.
INLINE Vec load_part(const float* from, long n) {
  if (n >= VL) return load(from);
  Vec values{};
  if (n > 0) memcpy(&values, from, (n < VL ? n : VL) * sizeof(float));
  return values;
}

INLINE void store_part(float* to, Vec values, long n) {
  if (n >= VL) store(to, values);
  else if (n > 0) memcpy(to, &values, (n < VL ? n : VL) * sizeof(float));
}

// The elements of a, then those of b, with even or odd numbers.
#ifdef __clang__
#define PICK(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define PICK(a, b, ...) __builtin_shuffle(a, b, Ints{__VA_ARGS__})
#endif
INLINE Vec even(Vec a, Vec b) { return PICK(a, b, EVEN); }
INLINE Vec odd(Vec a, Vec b) { return PICK(a, b, ODD); }

// The sums of VL vectors, as one vector. They are overwritten.
INLINE Vec sums_of(Vec* vectors) {
#pragma GCC unroll 8
  for (int count = VL / 2; count > 0; count /= 2)
#pragma GCC unroll 8
    for (int i = 0; i < count; i++) {
      const Vec first = vectors[2 * i], second = vectors[2 * i + 1];
      vectors[i] = even(first, second) + odd(first, second);
    }
  return vectors[0];
}

// The sum of a vector's values.
INLINE float sum(Vec values) {
  float parts[VL];
  store(parts, values);
  for (int half = VL / 2; half > 0; half /= 2)
    for (int i = 0; i < half; i++) parts[i] += parts[i + half];
  return parts[0];
}

// The largest of n values.
INLINE float highest(const float* x, long n) {
  Vec top = all(-INFINITY);
  long i = 0;
  for (; i + VL <= n; i += VL) top = load(x + i) > top ? load(x + i) : top;
  float result = -INFINITY;
  for (int lane = 0; lane < VL; lane++) result = top[lane] > result ? top[lane] : result;
  for (; i < n; i++) result = x[i] > result ? x[i] : result;
  return result;
}

// e^x for x <= 0, to about one unit in the last place: 2^n e^r with |r| <= ln 2 / 2, and e^r by its Taylor series.
// Below -87 the result is e^-87, next to the smallest normal number, and below -104 it is zero; above 0 it is 1.
INLINE Vec exp_of(Vec of) {
  Vec x = of < all(-87.f) ? all(-87.f) : of;
  x = x > Vec{} ? Vec{} : x;
  const Vec shift = all(12582912.f);  // 1.5 x 2^23: adding it rounds to a whole number, in the lowest bits
  Vec n = x * 1.44269504088896341f + shift;
  const Ints bits = (Ints)n;
  n -= shift;
  Vec r = x - n * 0.693145751953125f;  // ln 2 in two parts, the first with zeros at its end
  r -= n * 1.42860682030941723e-6f;
  Vec y = all(1.f / 5040);
  y = y * r + 1.f / 720;
  y = y * r + 1.f / 120;
  y = y * r + 1.f / 24;
  y = y * r + 1.f / 6;
  y = y * r + .5f;
  y = y * r + 1.f;
  y = y * r + 1.f;
  y = (Vec)((Ints)y + (bits << 23));
  return of != of ? of : of < all(-104.f) ? Vec{} : y;
}
