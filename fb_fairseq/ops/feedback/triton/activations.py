"""Activations in kernels, by number, and their derivatives. ``KIND`` is the number."""

import math

import triton
import triton.language as tl

from fb_fairseq.ops.layers import ACTIVATIONS

# Activations by number: the position of their names in ``ACTIVATIONS``.
NUMBERS = {name: number for number, name in enumerate(ACTIVATIONS)}
RELU = tl.constexpr(NUMBERS["relu"])
RELU_SQUARED = tl.constexpr(NUMBERS["relu_squared"])
GELU = tl.constexpr(NUMBERS["gelu"])
GELU_TANH = tl.constexpr(NUMBERS["gelu_accurate"])
TANH = tl.constexpr(NUMBERS["tanh"])
LINEAR = tl.constexpr(NUMBERS["linear"])
SQRT_HALF = tl.constexpr(math.sqrt(0.5))
SQRT_2_PI = tl.constexpr(math.sqrt(2 / math.pi))
DENSITY_AT_0 = tl.constexpr(1 / math.sqrt(2 * math.pi))  # of the normal distribution
# The cubic term of the approximation of GELU by tanh (Hendrycks and Gimpel 2016), and in its derivative.
CUBIC = tl.constexpr(0.044715)
CUBIC_SLOPE = tl.constexpr(3 * 0.044715)


@triton.jit
def tanh(x):
    """Hyperbolic tangent, which does not overflow."""
    e = tl.exp(-2 * tl.abs(x))
    y = (1 - e) / (1 + e)
    return tl.where(x < 0, -y, y)


@triton.jit
def activation(x, KIND: tl.constexpr):
    """The activation of a recorded hidden vector: for a ReLU the vector itself, which is recorded after it."""
    if KIND == RELU_SQUARED:
        positive = tl.where(x < 0, 0.0, x)  # (keeps NaN)
        x = positive * positive
    elif KIND == GELU:
        x = 0.5 * x * (1 + tl.erf(x * SQRT_HALF))
    elif KIND == GELU_TANH:
        x = 0.5 * x * (1 + tanh((x + CUBIC * x * x * x) * SQRT_2_PI))
    elif KIND == TANH:
        x = tanh(x)
    return x


@triton.jit
def derivative(x, KIND: tl.constexpr):
    """The derivative at a recorded hidden vector."""
    slope = x * 0 + 1
    if KIND == RELU:
        slope = tl.where(x > 0, slope, slope * 0)
    elif KIND == RELU_SQUARED:
        slope = 2 * tl.where(x < 0, 0.0, x)
    elif KIND == GELU:
        slope = 0.5 * (1 + tl.erf(x * SQRT_HALF)) + x * DENSITY_AT_0 * tl.exp(-0.5 * x * x)
    elif KIND == GELU_TANH:
        t = tanh((x + CUBIC * x * x * x) * SQRT_2_PI)
        slope = 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * SQRT_2_PI * (1 + CUBIC_SLOPE * x * x)
    elif KIND == TANH:
        t = tanh(x)
        slope = 1 - t * t
    return slope
