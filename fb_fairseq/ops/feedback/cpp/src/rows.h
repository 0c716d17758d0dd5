// Operations on rows alone: layer norms, activations, dropout, sums. Vectors [n], or rows [rows, D].
//
// NaN and infinity go through as they do through torch's operations: x <= 0 ? 0 : x keeps NaN, and
// dropped entries are multiplied by zero.
#pragma once
#include "arguments.h"
#include "vectors.h"

// y += factor x.
INLINE void add_scaled(long n, float factor, const float* x, float* y) {
  for (long i = 0; i < n; i++) y[i] += factor * x[i];
}

// y = x with dropped entries zero and kept ones scaled; y may be x.
INLINE void drop(long n, const uint8_t* keep, float scale, const float* x, float* y) {
  for (long i = 0; i < n; i++) y[i] = x[i] * (keep[i] ? scale : 0.f);
}

struct Moments {
  float mean, rstd;  // rstd: 1 / standard deviation
};

// Of a row x [D].

INLINE Moments moments_of(long D, const float* x, float eps) {
  float total = 0, squares = 0;
#pragma omp simd reduction(+ : total)
  for (long d = 0; d < D; d++) total += x[d];
  const float mean = total / D;
#pragma omp simd reduction(+ : squares)
  for (long d = 0; d < D; d++) squares += (x[d] - mean) * (x[d] - mean);
  return {mean, 1.f / sqrtf(squares / D + eps)};
}

// y = the norm of x.
static void layer_norm(long rows, long D, const float* x, Norm norm, float eps, float* y) {
  for (long r = 0; r < rows; r++, x += D, y += D) {
    const Moments moments = moments_of(D, x, eps);
    for (long d = 0; d < D; d++) y[d] = (x[d] - moments.mean) * moments.rstd * norm.weight[d] + norm.bias[d];
  }
}

// The gradient of a norm's input x from that of its result: added to dx, or in its place. dx may be dy where not added.
static void layer_norm_backward(long rows, long D, const float* dy, const float* x, Norm norm, float eps, bool add,
                                float* dx) {
  for (long r = 0; r < rows; r++, x += D, dy += D, dx += D) {
    const Moments moments = moments_of(D, x, eps);
    float sum = 0, along = 0;
#pragma omp simd reduction(+ : sum, along)
    for (long d = 0; d < D; d++) {
      const float scaled = dy[d] * norm.weight[d];
      sum += scaled;
      along += scaled * (x[d] - moments.mean);
    }
    sum /= D;
    along *= moments.rstd * moments.rstd / D;
    for (long d = 0; d < D; d++) {
      const float result = moments.rstd * (dy[d] * norm.weight[d] - sum - (x[d] - moments.mean) * along);
      dx[d] = add ? dx[d] + result : result;
    }
  }
}

constexpr float SQRT_HALF = 0.70710678118654752f, GAUSS = 0.39894228040143268f;   // 1 / sqrt 2, 1 / sqrt(2 pi)
constexpr float TANH_FACTOR = 0.79788456080286536f, TANH_CUBE = 0.044715f;        // gelu_accurate (Hendrycks & Gimpel)

// y = the activation of x.
static void activate(Activation kind, long n, const float* x, float* y) {
  switch (kind) {
    case Activation::relu: for (long i = 0; i < n; i++) y[i] = x[i] <= 0 ? 0.f : x[i]; break;
    case Activation::relu_squared: for (long i = 0; i < n; i++) y[i] = x[i] <= 0 ? 0.f : x[i] * x[i]; break;
    case Activation::gelu: for (long i = 0; i < n; i++) y[i] = .5f * x[i] * (1 + erff(x[i] * SQRT_HALF)); break;
    case Activation::gelu_accurate:
      for (long i = 0; i < n; i++)
        y[i] = .5f * x[i] * (1 + tanhf(TANH_FACTOR * (x[i] + TANH_CUBE * x[i] * x[i] * x[i])));
      break;
    case Activation::tanh: for (long i = 0; i < n; i++) y[i] = tanhf(x[i]); break;
    case Activation::linear: memcpy(y, x, n * sizeof(float)); break;
  }
}

// dy becomes the gradient of the activation's input x; of a ReLU, x may be its result.
static void activate_backward(Activation kind, long n, const float* x, float* dy) {
  switch (kind) {
    case Activation::relu: for (long i = 0; i < n; i++) dy[i] = x[i] <= 0 ? 0.f : dy[i]; break;
    case Activation::relu_squared: for (long i = 0; i < n; i++) dy[i] = x[i] <= 0 ? 0.f : dy[i] * 2 * x[i]; break;
    case Activation::gelu:
      for (long i = 0; i < n; i++)
        dy[i] *= .5f * (1 + erff(x[i] * SQRT_HALF)) + x[i] * GAUSS * expf(-.5f * x[i] * x[i]);
      break;
    case Activation::gelu_accurate:
      for (long i = 0; i < n; i++) {
        const float square = x[i] * x[i], tanh = tanhf(TANH_FACTOR * x[i] * (1 + TANH_CUBE * square));
        dy[i] *= .5f * (1 + tanh) + .5f * x[i] * (1 - tanh * tanh) * TANH_FACTOR * (1 + 3 * TANH_CUBE * square);
      }
      break;
    case Activation::tanh:
      for (long i = 0; i < n; i++) {
        const float tanh = tanhf(x[i]);
        dy[i] *= 1 - tanh * tanh;
      }
      break;
    case Activation::linear: break;
  }
}
