"""Weights in the layout of the native loop."""

from typing import Callable, List, Optional

import torch
from torch import Tensor

from fb_fairseq.ops.feedback.fast.block import ComputeWeights
from fb_fairseq.ops.feedback.native.library import AttentionArgs, LayerArgs, Library, Matrix, Norm, SetArgs, pointer
from fb_fairseq.ops.feedback.types import one_or_own
from fb_fairseq.ops.layers import Affine, Layer


class Packing:
    """What the arguments of a native call point to; it must stay as long as they are used.

    Args:
        empty: makes a buffer of some floats.
    """

    def __init__(self, library: Library, empty: Callable[[int], Tensor]):
        self.library, self._empty = library, empty
        self._held: List[Tensor] = []

    def hold(self, x: Optional[Tensor]) -> Optional[int]:
        """The pointer of a tensor that must stay; of a copy if it is not contiguous."""
        if x is not None:
            x = x.detach().contiguous()
            self._held.append(x)
        return pointer(x)

    def empty(self, size: int) -> Tensor:
        """A buffer of some floats."""
        buffer = self._empty(size)
        self._held.append(buffer)
        return buffer

    def pack(self, weight: Tensor, transposed: bool) -> int:
        """The pointer of a packed matrix: of ``weight`` [K, N], or of the transpose of ``weight`` [N, K]."""
        weight = weight.detach()
        rows, columns = weight.stride()
        (K, N) = weight.shape if not transposed else weight.shape[::-1]
        packed = self.empty(self.library.packed_size(K, N))
        strides = (columns, rows) if transposed else (rows, columns)
        self.library.pack(weight.data_ptr(), K, N, *strides, packed.data_ptr())
        return packed.data_ptr()

    def matrix(self, affine: Affine) -> Matrix:
        """A linear map, for ``x Wᵀ + b``."""
        return Matrix(self.pack(affine.weight, True), self.hold(affine.bias))

    def transpose(self, affine: Affine) -> Matrix:
        """A linear map, for the gradient of its input."""
        return Matrix(self.pack(affine.weight, False), None)

    def norm(self, norm: Optional[Affine]) -> Norm:
        """A layer norm; null without one."""
        return Norm() if norm is None else Norm(self.hold(norm.weight), self.hold(norm.bias))

    def fill_layer(self, a: LayerArgs, weights: ComputeWeights, l: int) -> None:
        """Pack a layer's weights."""
        layer, span = weights.layers[l], weights.spans[l]
        a.set = one_or_own(l, len(weights.sources))
        if span is not None:
            a.log_mask, a.outside = self.hold(span.log_mask_HS), self.hold(span.outside_HS)
        self._fill_attention(a.memory, layer)
        if layer.cross is not None:
            self._fill_attention(a.cross, layer.cross)
        a.fc1, a.fc2, a.ffn_norm = self.matrix(layer.fc1), self.matrix(layer.fc2), self.norm(layer.ffn_norm)

    def _fill_attention(self, a: AttentionArgs, layer) -> None:
        a.query, a.out, a.norm = self.matrix(layer.query), self.matrix(layer.out), self.norm(layer.attn_norm)

    def fill_layer_transposes(self, a: LayerArgs, layer: Layer) -> None:
        """Pack what only the backward pass needs of a layer."""
        for attention, weights in ((a.memory, layer), (a.cross, layer.cross)):
            if weights is not None:
                attention.query_t, attention.out_t = self.transpose(weights.query), self.transpose(weights.out)
        a.fc1_t, a.fc2_t = self.transpose(layer.fc1), self.transpose(layer.fc2)

    def fill_set(self, a: SetArgs, weights: ComputeWeights, i: int) -> None:
        """Pack the key and value projection of a set, and its norm."""
        memory, projection = weights.sources[i]
        a.project, a.norm = self.matrix(weights.key_values[projection]), self.norm(weights.projections[projection].norm)
        a.memory = memory


def packing_in(buffers, library: Library) -> Packing:
    """A packing whose memory is that of a block's buffers."""
    return Packing(library, lambda size: buffers.empty(size, dtype=torch.float32))
