"""The arguments of calls of C++, for a block, a step of decoding and a tile of the backward pass."""

import ctypes
from typing import Any

from torch import Tensor

from fb_fairseq.ops.dropout import Dropout
from fb_fairseq.ops.feedback.cpp.library import pointer
from fb_fairseq.ops.feedback.cpp.packing import Packing
from fb_fairseq.ops.feedback.cpp.structures import (
    ACTIVATION_NUMBERS,
    LATER,
    BlockArgs,
    Mask,
    RecordArgs,
    TileArgs,
)
from fb_fairseq.ops.feedback.record import Record
from fb_fairseq.ops.feedback.tile import Tile
from fb_fairseq.ops.feedback.types import FeedbackDropouts, FeedbackOptions, Sizes
from fb_fairseq.ops.feedback.weights import ComputeWeights
from fb_fairseq.ops.layers import LAYER_NORM_EPS

NO_MASK = Mask(keep=None, scale=1.0)


def block_arguments(
    packing: Packing,
    sizes: Sizes,
    weights: ComputeWeights,
    options: FeedbackOptions,
    *,
    layers: Any,
    sets: Any,
    sentences: int,
    padding_BC: Tensor | None,
    dropouts: FeedbackDropouts = FeedbackDropouts(),
    age_TB: Tensor | None = None,
    **fields: Any,
) -> BlockArgs:
    """The arguments of a block, with scratch memory. In decoding a step is a block of one step.

    Args:
        layers: an array of ``LayerArgs``, which must stay as long as the arguments are used.
        sets: the same of ``SetArgs``.
        sentences: of the encoder's output; each serves the same number of consecutive streams.
        padding_BC: True where a sentence is padded; None: nowhere.
        fields: ``record``, and the pointers ``x``, ``first_query``, ``memory``, ``out`` and ``aligned``, see
            src/arguments.def; pointers are ``LATER``, or not given if they are optional, where each call sets them.
    """

    def mask(dropout: Dropout | None) -> Mask:
        return NO_MASK if dropout is None else Mask(keep=packing.hold(dropout.keep), scale=dropout.scale)

    attention = dropouts.attention_LTBHS
    arguments = BlockArgs(
        **sizes._asdict(),
        rows_per_source=sizes.B // sentences,
        mask_slots=0 if attention is None else attention.keep.shape[-1],
        pre_norm=int(options.normalize_before),
        activation=ACTIVATION_NUMBERS[options.activation],
        alignment_layer=options.alignment_layer or 0,
        alignment_heads=options.alignment_heads or sizes.H,
        scale=sizes.E**-0.5,
        eps=LAYER_NORM_EPS,
        layers=ctypes.addressof(layers),
        sets=ctypes.addressof(sets),
        mix=packing.hold(weights.mix_KA),
        key_positions=packing.positions(weights.positions.key_SE, sizes.S, transposed=True),
        value_positions=packing.positions(weights.positions.value_SE, sizes.S, transposed=False),
        age=None if age_TB is None else packing.hold(age_TB.long()),
        padding=packing.hold(padding_BC),
        attention_mask=mask(attention),
        hidden_mask=mask(dropouts.hidden_LTBF),
        attention_residual_mask=mask(dropouts.attention_residual_LTBD),
        ffn_residual_mask=mask(dropouts.ffn_residual_LTBD),
        cross_mask=mask(dropouts.cross_LTBHC),
        cross_residual_mask=mask(dropouts.cross_residual_LTBD),
        scratch=LATER,  # its size depends on the other arguments
        **fields,
    )
    floats = packing.library.scratch_size(ctypes.byref(arguments))
    arguments.scratch = packing.empty(sizes.B * floats).data_ptr()
    return arguments


def record_arguments(record: Record) -> RecordArgs:
    """A record of activations, with attention weights."""
    tensors = {name: pointer(getattr(record, name)) for name in RecordArgs.names if name != "steps"}
    return RecordArgs(steps=record.steps, **tensors)


def tile_arguments(tile: Tile, transposes: int, d_out_TBD: Tensor, d_x_TBD: Tensor) -> TileArgs:
    """The arguments of a tile.

    Args:
        transposes: the pointer of the ``BlockTransposes``.
        d_out_TBD: the gradient of the block's outputs.
        d_x_TBD: where the gradient of its embeddings is written.
    """
    work = tile.work
    return TileArgs(
        first=tile.first,
        steps=tile.steps,
        at=tile.at,
        room=len(work.dq),
        W=work.ds_TLGW.shape[-1],
        transposes=transposes,
        d_out=pointer(d_out_TBD),
        d_x=pointer(d_x_TBD),
        d_slots=pointer(tile.sums.slots),
        d_kv=pointer(work.d_kv_ITBZ),
        d_kv_normed=pointer(work.d_kv_normed_ITBD),
        d_memory=pointer(work.d_memory_KTBD),
        ds=pointer(work.ds_TLGW),
        p_slots=pointer(work.p_TLGW),
        # The others have the workspace's names.
        **{name: pointer(x) for name, x in vars(work).items() if name in TileArgs.names},
    )
