"""Weights in the layout of the C++ loop."""

from collections.abc import Callable, Sequence

from torch import Tensor

from fb_fairseq.ops.feedback.cpp.library import Library, pointer
from fb_fairseq.ops.feedback.cpp.structures import AttentionArgs, LayerArgs, LayerTransposes, Matrix, Norm, SetArgs
from fb_fairseq.ops.feedback.types import one_or_own
from fb_fairseq.ops.feedback.weights import ComputeWeights
from fb_fairseq.ops.layers import Affine, CrossAttention, Layer


class Packing:
    """Memory that the arguments of a call of C++ point to; it must stay as long as they are used. ``empty``: makes a
    buffer of some floats.
    """

    def __init__(self, library: Library, empty: Callable[[int], Tensor]):
        self.library, self._empty = library, empty
        self._held: list[Tensor] = []

    def hold(self, x: Tensor | None) -> int | None:
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
        shape, strides = weight.shape, weight.stride()
        if transposed:
            shape, strides = shape[::-1], strides[::-1]
        packed = self.empty(self.library.packed_size(*shape))
        self.library.pack(weight.data_ptr(), *shape, *strides, packed.data_ptr())
        return packed.data_ptr()

    def matrix(self, affine: Affine) -> Matrix:
        """A linear map, for ``x Wᵀ + b``."""
        return Matrix(panels=self.pack(affine.weight, True), bias=self.hold(affine.bias))

    def transpose(self, affine: Affine) -> int:
        """The pointer of a packed matrix for the gradient of a linear map's input."""
        return self.pack(affine.weight, False)

    def norm(self, norm: Affine) -> Norm:
        """A layer norm."""
        return Norm(weight=self.hold(norm.weight), bias=self.hold(norm.bias))

    def layer(
        self,
        weights: ComputeWeights,
        l: int,
        reach: int,
        encoder: Sequence[int | None] | None = None,
    ) -> LayerArgs:
        """A layer's weights, packed, and what it sees. ``encoder``: pointers to keys and values of the encoder's
        output; None: there is none, or it is set later.
        """
        layer, span = weights.layers[l], weights.spans[l]
        return LayerArgs(
            memory=self._attention(layer),
            cross=layer.cross and self._attention(layer.cross),
            fc1=self.matrix(layer.fc1),
            fc2=self.matrix(layer.fc2),
            ffn_norm=self.norm(layer.ffn_norm),
            log_mask=span and self.hold(span.log_mask_HS),
            outside=span and self.hold(span.outside_HS),
            encoder=encoder,
            reach=reach,
            set=one_or_own(l, len(weights.kv_sets)),
        )

    def _attention(self, layer: Layer | CrossAttention) -> AttentionArgs:
        return AttentionArgs(
            query=self.matrix(layer.query), out=self.matrix(layer.out), norm=self.norm(layer.attn_norm)
        )

    def layer_transposes(self, layer: Layer) -> LayerTransposes:
        """A layer's weights as only the backward pass needs them."""
        return LayerTransposes(
            query=self.transpose(layer.query),
            out=self.transpose(layer.out),
            cross_query=layer.cross and self.transpose(layer.cross.query),
            cross_out=layer.cross and self.transpose(layer.cross.out),
            fc1=self.transpose(layer.fc1),
            fc2=self.transpose(layer.fc2),
        )

    def key_values(self, weights: ComputeWeights, i: int, slots: Sequence[int]) -> SetArgs:
        """The key and value projection of a set, packed, and its norm. ``slots``: pointers to the set's keys and
        values.
        """
        memory, projection = weights.kv_sets[i]
        norm = weights.projections[projection].norm
        return SetArgs(
            project=self.matrix(weights.key_values[projection]),
            norm=norm and self.norm(norm),
            slots=slots,
            memory=memory,
        )

    def positions(self, table_SE: Tensor | None, slots: int, transposed: bool) -> int | None:
        """The pointer of the packed positions of the last slots, or of their transpose; None without positions."""
        return None if table_SE is None else self.pack(table_SE[-slots:], transposed)
