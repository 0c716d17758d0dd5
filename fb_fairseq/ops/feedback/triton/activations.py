"""Activations in kernels, by number."""

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
# The constants below: sqrt(1/2), sqrt(2/π), 1/sqrt(2π), and 0.044715, the cubic term of the approximation of GELU by
# tanh (Hendrycks and Gimpel 2016), which is three times as large in its derivative.


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
        x = 0.5 * x * (1 + tl.erf(x * 0.7071067811865476))
    elif KIND == GELU_TANH:
        x = 0.5 * x * (1 + tanh((x + 0.044715 * x * x * x) * 0.7978845608028654))
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
        slope = 0.5 * (1 + tl.erf(x * 0.7071067811865476)) + x * 0.3989422804014327 * tl.exp(-0.5 * x * x)
    elif KIND == GELU_TANH:
        t = tanh((x + 0.044715 * x * x * x) * 0.7978845608028654)
        slope = 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * 0.7978845608028654 * (1 + 0.134145 * x * x)
    elif KIND == TANH:
        t = tanh(x)
        slope = 1 - t * t
    return slope
