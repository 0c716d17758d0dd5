"""What the fast step loop's backward pass works with: sums of gradients, and tiles of steps.

Shape suffixes: see ``fb_fairseq/ops/feedback/forward.py``.
"""

import math
from typing import List, Optional

import torch
from torch import Tensor

from fb_fairseq.ops.feedback.forward import Block, Record, Views
from fb_fairseq.ops.layers import Affine, at_least_fp32


class Gradients:
    """Sums of one weight's and bias's gradients over tiles."""

    def __init__(self, affine: Affine):
        self.weight = torch.zeros_like(at_least_fp32(affine.weight))
        self.bias = None if affine.bias is None else torch.zeros_like(at_least_fp32(affine.bias))

    def add_linear(self, d_out_RY: Tensor, x_RX: Tensor) -> None:
        """Of ``x Wᵀ + b``."""
        add_product(self.weight, d_out_RY.t(), x_RX)
        if self.bias is not None:
            self.bias += d_out_RY.sum(0, dtype=self.bias.dtype)

    def add_norm(self, d_normed_TBD: Tensor, normed: "Normed") -> None:
        """Of a layer norm."""
        _, weight, bias = normed.backward(d_normed_TBD, [False, True, True])
        self.weight += weight
        self.bias += bias

    def affine(self, like: Affine) -> Affine:
        """The sums in the type of the weight and bias."""
        return cast(Affine(self.weight, self.bias), like)


class Normed:
    """A layer norm of some steps: result and statistics.

    result_TBD: the input itself where there is no norm.
    """

    def __init__(self, x_TBD: Tensor, affine: Optional[Affine]):
        self.x, self.affine, self.result_TBD = x_TBD, affine, x_TBD
        if affine is not None:
            self.result_TBD, self.mean, self.rstd = torch.native_layer_norm(
                x_TBD, x_TBD.shape[-1:], affine.weight, affine.bias, 1e-5
            )
            self.steps = [x.unbind(0) for x in (self.x, self.mean, self.rstd)]

    def rows(self, dtype: torch.dtype) -> Tensor:
        """The result [R, D]."""
        return self.result_TBD.flatten(0, 1).to(dtype)

    def step_backward(self, d_normed_BD: Tensor, i: int) -> Tensor:
        """The gradient of the input at one step."""
        x, mean, rstd = (steps[i] for steps in self.steps)
        weight, bias = self.affine
        return torch.ops.aten.native_layer_norm_backward(
            d_normed_BD, x, x.shape[-1:], mean, rstd, weight, bias, [True, False, False]
        )[0]

    def backward(self, d_normed_TBD: Tensor, wanted: List[bool]):
        """Gradients of input, weight and bias."""
        return torch.ops.aten.native_layer_norm_backward(
            d_normed_TBD.to(self.x.dtype), self.x, self.x.shape[-1:], self.mean, self.rstd, *self.affine, wanted
        )


class Workspace:
    """What the steps of a tile leave for its end; made once, used by all tiles.

    Gradients at the outputs of the queries (dq), of attention (da), the output projections, fc1, fc2, and of norms, by
    step and layer or by layer and step. ds and p are by slot: the window of a tile's step i begins in column i; ds is
    the scores' gradient, p the weights after dropout.
    """

    def __init__(self, block: Block, steps: int):
        b = block
        L, B, D, X = b.L, b.B, b.D, b.H * b.E
        self.dq_TLBX, self.da_TLBX = b.new_half(steps, L, B, X), b.new_half(steps, L, B, X)
        self.d_attention_LTBD, self.d_ffn_LTBD = b.new_half(L, steps, B, D), b.new_half(L, steps, B, D)
        self.d_hidden_LTBF = b.new_half(L, steps, B, b.F)
        self.d_norm1_LTBD, self.d_norm2_LTBD = b.new(L, steps, B, D), b.new(L, steps, B, D)
        self.d_kv_ITBX = b.new_half(b.I, steps, B, 2 * X)
        self.d_kv_normed_ITBD, self.d_memory_KTBD = b.new(b.I, steps, B, D), b.new(b.K, steps, B, D)
        self.ds_TLGW = b.new_half(steps, L, b.G, b.S + steps - 1).zero_()
        self.p_TLGW = b.new_half(*self.ds_TLGW.shape).zero_()
        if b.cross:
            self.dcq_TLBX, self.dca_TLBX = b.new_half(steps, L, B, X), b.new_half(steps, L, B, X)
            self.d_crossed_LTBD, self.d_cross_norm_LTBD = b.new_half(L, steps, B, D), b.new(L, steps, B, D)
            self.dcs_TLGC = b.new_half(steps, L, b.G, b.cross_slots)
        self.weights, self.vectors, self.pushed = (
            Scratch(b.new_half(size)) for size in (steps * L * b.G * b.S, steps * L * b.G * b.E, b.G * b.S * b.E)
        )
        self.ds_TLGS, self.p_TLGS = (by_distance(x, b.S) for x in (self.ds_TLGW, self.p_TLGW))
        self.views = Views({name: x for name, x in vars(self).items() if torch.is_tensor(x)}, b)


class Scratch:
    """A flat buffer, in any shape that fits into it."""

    def __init__(self, buffer: Tensor):
        self.buffer = buffer

    def shaped(self, *shape: int) -> Tensor:
        return self.buffer[: math.prod(shape)].view(shape)


def by_distance(x_TLGW: Tensor, span: int) -> Tensor:
    """The view [T, L, G, S] of the windows of a tile's steps."""
    T, L, G, W = x_TLGW.shape
    return x_TLGW.as_strided((T, L, G, span), (L * G * W + 1, G * W, W, 1))


class Tile:
    """Some steps of the block: n from ``first`` on, which stand in the record from ``at`` on."""

    def __init__(self, block: Block, record: Record, work: Workspace, first: int, last: int, at: int):
        b = block
        self.record, self.first, self.last, self.at, self.n = record, first, last, at, last - first
        if b.ragged:
            work.ds_TLGW.zero_()
            work.p_TLGW.zero_()
        p_TLGS, mask = record.p_TLGS[at : at + self.n], b.dropouts.attention_LTBHS
        if mask is not None:
            p_TLGS = p_TLGS * mask.keep[:, first:last, ..., -b.S :].transpose(0, 1).flatten(2, 3) * mask.scale
        work.p_TLGS[: self.n] = p_TLGS
        # Keys get their gradients from the scores' and the queries, values from the weights and the attended's.
        self.sides = ((0, work.ds_TLGW, record.q_TLBX[at : at + self.n], b.scale), (1, work.p_TLGW, work.da_TLBX, 1.0))
        if b.options.normalize_before:
            inputs = record.x_NTBD, record.attended_x_LTBD, record.crossed_x_LTBD if b.cross else record.attended_x_LTBD
        else:
            inputs = record.attention_sum_LTBD, record.cross_sum_LTBD if b.cross else None, record.ffn_sum_LTBD
        steps = slice(at, at + self.n)
        self.norm1 = [Normed(inputs[0][l, steps], layer.attn_norm) for l, layer in enumerate(b.layers)]
        self.norm2 = [Normed(inputs[2][l, steps], layer.ffn_norm) for l, layer in enumerate(b.layers)]
        if b.cross:
            self.cross_norm = [Normed(inputs[1][l, steps], layer.cross.attn_norm) for l, layer in enumerate(b.layers)]
        self.memory_norm = [
            Normed(b.memory_KTBD[memory, first:last], b.weights.projections[projection].norm)
            for memory, projection in zip(b.memory_of, b.projection_of)
        ]

    def rows(self, x_LTBD: Tensor, l: int) -> Tensor:
        """A layer's rows [R, D]."""
        return x_LTBD[l, self.at : self.at + self.n].flatten(0, 1)

    def vectors(self, x_TLBX: Tensor, l: int) -> Tensor:
        return x_TLBX[self.at : self.at + self.n, l].flatten(0, 1)


def cast(affine: Affine, like: Affine) -> Affine:
    return Affine(*(None if x is None else x.to(own.dtype) for x, own in zip(affine, like)))


def add_product(total: Tensor, a: Tensor, b: Tensor, factor: float = 1.0) -> None:
    """Add ``factor a b``, matrices or batches of them, to a total that may be of a wider type."""
    if total.dtype != a.dtype:
        total.add_(a @ b, alpha=factor)
    elif total.dim() == 2:
        total.addmm_(a, b, alpha=factor)
    else:
        total.baddbmm_(a, b, alpha=factor)
