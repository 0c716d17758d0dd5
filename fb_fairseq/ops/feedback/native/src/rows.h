// What acts on rows alone: layer norms, activations, dropout, sums.
#pragma once
#include "vectors.h"

INLINE void add_scaled(long n, float factor, const float* x, float* y) {
  for (long i = 0; i < n; i++) y[i] += factor * x[i];
}

// y = x with dropped entries zero and kept ones scaled; y may be x.
INLINE void drop(long n, const uint8_t* keep, float scale, const float* x, float* y) {
  for (long i = 0; i < n; i++) y[i] = keep[i] ? x[i] * scale : 0.f;
}

struct Norm {
  const float *weight, *bias;
};

struct Moments {
  float mean, rstd;
};

INLINE Moments moments(long D, const float* x, float eps) {
  float total = 0, squares = 0;
#pragma omp simd reduction(+ : total)
  for (long d = 0; d < D; d++) total += x[d];
  const float mean = total / D;
#pragma omp simd reduction(+ : squares)
  for (long d = 0; d < D; d++) squares += (x[d] - mean) * (x[d] - mean);
  return {mean, 1.f / sqrtf(squares / D + eps)};
}

static void layer_norm(long rows, long D, const float* x, Norm norm, float eps, float* y) {
  for (long r = 0; r < rows; r++, x += D, y += D) {
    const Moments m = moments(D, x, eps);
    for (long d = 0; d < D; d++) y[d] = (x[d] - m.mean) * m.rstd * norm.weight[d] + norm.bias[d];
  }
}

// The gradient of a norm's input x from that of its result: added to dx, or in its place. dx may be dy where not added.
static void layer_norm_backward(long rows, long D, const float* dy, const float* x, Norm norm, float eps, bool add, float* dx) {
  for (long r = 0; r < rows; r++, x += D, dy += D, dx += D) {
    const Moments m = moments(D, x, eps);
    float sum = 0, along = 0;
#pragma omp simd reduction(+ : sum, along)
    for (long d = 0; d < D; d++) {
      const float g = dy[d] * norm.weight[d];
      sum += g;
      along += g * (x[d] - m.mean);
    }
    sum /= D;
    along *= m.rstd * m.rstd / D;
    for (long d = 0; d < D; d++) {
      const float g = m.rstd * (dy[d] * norm.weight[d] - sum - (x[d] - m.mean) * along);
      dx[d] = add ? dx[d] + g : g;
    }
  }
}

// In the order of ACTIVATIONS in native/loop.py.
enum class Activation : int64_t { relu, relu_squared, gelu, gelu_accurate, tanh, linear };

constexpr float SQRT_HALF = 0.70710678118654752f, GAUSS = 0.39894228040143268f;   // 1 / sqrt 2, 1 / sqrt(2 pi)
constexpr float TANH_FACTOR = 0.79788456080286536f, TANH_CUBE = 0.044715f;        // gelu_accurate (Hendrycks & Gimpel)

static void activate(Activation kind, long n, const float* x, float* y) {
  switch (kind) {
    case Activation::relu: for (long i = 0; i < n; i++) y[i] = x[i] > 0 ? x[i] : 0.f; break;
    case Activation::relu_squared: for (long i = 0; i < n; i++) y[i] = x[i] > 0 ? x[i] * x[i] : 0.f; break;
    case Activation::gelu: for (long i = 0; i < n; i++) y[i] = .5f * x[i] * (1 + erff(x[i] * SQRT_HALF)); break;
    case Activation::gelu_accurate:
      for (long i = 0; i < n; i++) y[i] = .5f * x[i] * (1 + tanhf(TANH_FACTOR * (x[i] + TANH_CUBE * x[i] * x[i] * x[i])));
      break;
    case Activation::tanh: for (long i = 0; i < n; i++) y[i] = tanhf(x[i]); break;
    case Activation::linear: memcpy(y, x, n * sizeof(float)); break;
  }
}

// dy becomes the gradient of the activation's input x; of a ReLU, x may be its result.
static void activate_backward(Activation kind, long n, const float* x, float* dy) {
  switch (kind) {
    case Activation::relu: for (long i = 0; i < n; i++) dy[i] = x[i] > 0 ? dy[i] : 0.f; break;
    case Activation::relu_squared: for (long i = 0; i < n; i++) dy[i] *= x[i] > 0 ? 2 * x[i] : 0.f; break;
    case Activation::gelu:
      for (long i = 0; i < n; i++)
        dy[i] *= .5f * (1 + erff(x[i] * SQRT_HALF)) + x[i] * GAUSS * expf(-.5f * x[i] * x[i]);
      break;
    case Activation::gelu_accurate:
      for (long i = 0; i < n; i++) {
        const float square = x[i] * x[i], t = tanhf(TANH_FACTOR * x[i] * (1 + TANH_CUBE * square));
        dy[i] *= .5f * (1 + t) + .5f * x[i] * (1 - t * t) * TANH_FACTOR * (1 + 3 * TANH_CUBE * square);
      }
      break;
    case Activation::tanh:
      for (long i = 0; i < n; i++) {
        const float t = tanhf(x[i]);
        dy[i] *= 1 - t * t;
      }
      break;
    case Activation::linear: break;
  }
}
