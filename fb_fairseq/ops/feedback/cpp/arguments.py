"""The arguments of calls of C++: of a block, of a step of decoding, and of a tile of the backward pass.

Shape suffixes: see ``fb_fairseq/ops/__init__.py``.
"""

import ctypes
from typing import Any, NamedTuple

from torch import Tensor

from fb_fairseq.ops.feedback.cpp.library import pointer
from fb_fairseq.ops.feedback.cpp.packing import Packing
from fb_fairseq.ops.feedback.cpp.structures import ACTIVATION_NUMBERS, LATER, BlockArgs, Mask, RecordArgs, TileArgs
from fb_fairseq.ops.feedback.torch.block import ComputeWeights
from fb_fairseq.ops.feedback.torch.tile import Tile
from fb_fairseq.ops.feedback.types import FeedbackDropouts, FeedbackOptions, Sizes
from fb_fairseq.ops.layers import LAYER_NORM_EPS, Dropout

NO_MASK = Mask(keep=None, scale=1.0)
NO_RECORD = dict.fromkeys(RecordArgs.optional)

# Tensors of a ``Workspace`` by step and layer; the second ones are of attention to an encoder.
WORKSPACE = "dq da d_attention d_ffn d_hidden d_attn_norm d_ffn_norm".split()
WORKSPACE_CROSS = "dcq dca dcs d_crossed d_cross_norm".split()


class EncoderShape(NamedTuple):
    """The size of an encoder's output, and its padding.

    Attributes:
        sources: source positions per sentence.
        sentences: each serves the same number of consecutive streams.
        padding_BC: True where a sentence is padded; None: nowhere.
    """

    sources: int
    sentences: int
    padding_BC: Tensor | None


def block_arguments(
    packing: Packing,
    sizes: Sizes,
    weights: ComputeWeights,
    options: FeedbackOptions,
    *,
    layers: Any,
    sets: Any,
    record: RecordArgs,
    encoder: EncoderShape | None,
    dropouts: FeedbackDropouts,
    reach_TB: Tensor | None,
    x: int,
    first_query: int | None,
    memory: int,
    out: int | None,
    aligned: int | None,
) -> BlockArgs:
    """The arguments of a block, with scratch memory. In decoding a step is a block of one step.

    Args:
        layers: an array of ``LayerArgs``, which must stay as long as the arguments are used.
        sets: the same of ``SetArgs``.
        x, first_query, memory, out, aligned: pointers, see src/arguments.def; ``LATER`` or None if they are set before
            each call.
    """
    sources, sentences, padding_BC = encoder or EncoderShape(0, sizes.B, None)

    def mask(dropout: Dropout | None) -> Mask:
        return NO_MASK if dropout is None else Mask(keep=packing.hold(dropout.keep), scale=dropout.scale)

    attention = dropouts.attention_LTBHS
    arguments = BlockArgs(
        **sizes._asdict(),
        sources=sources,
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
        key_positions=packing.positions(weights.key_positions_SE, sizes.S, True),
        value_positions=packing.positions(weights.value_positions_SE, sizes.S, False),
        reach=None if reach_TB is None else packing.hold(reach_TB.long()),
        padding=packing.hold(padding_BC),
        attention_mask=mask(attention),
        hidden_mask=mask(dropouts.hidden_LTBF),
        attention_residual_mask=mask(dropouts.attention_residual_LTBD),
        ffn_residual_mask=mask(dropouts.ffn_residual_LTBD),
        cross_mask=mask(dropouts.cross_LTBHC),
        cross_residual_mask=mask(dropouts.cross_residual_LTBD),
        record=record,
        x=x,
        first_query=first_query,
        memory=memory,
        out=out,
        aligned=aligned,
        scratch=LATER,
    )
    floats = packing.library.scratch_size(ctypes.byref(arguments))  # it depends on the other arguments
    arguments.scratch = packing.empty(sizes.B * floats).data_ptr()
    return arguments


def recorded(options: FeedbackOptions, encoder: bool) -> list[str]:
    """The names of the tensors that a ``Record`` has.

    Args:
        encoder: whether there is attention to an encoder.
    """
    names = ["x", "attended_x", "q", "a", "p", "hidden"]
    if encoder:
        names += ["crossed_x", "cross_q", "cross_a", "cross_p"]
    if not options.normalize_before:
        names += ["attention_sum", "ffn_sum"] + ["cross_sum"] * encoder
    return names


def record_arguments(steps: int, pointers: dict[str, int]) -> RecordArgs:
    """A record of activations.

    Args:
        pointers: of the tensors that are ``recorded``; the others are null.
    """
    return RecordArgs(steps=steps, **{**NO_RECORD, **pointers})


def tile_arguments(tile: Tile, transposes: int, d_out_TBD: Tensor, d_x_TBD: Tensor) -> TileArgs:
    """The arguments of a tile.

    Args:
        transposes: the pointer of the ``BlockTransposes``.
        d_out_TBD: the gradient of the block's outputs.
        d_x_TBD: that of its embeddings, to be written.
    """
    work, encoder = tile.work, bool(tile.block.encoder)
    return TileArgs(
        first=tile.first,
        steps=tile.steps,
        at=tile.at,
        room=len(work.dq.whole),
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
        **{name: pointer(getattr(work, name).whole) for name in WORKSPACE},
        **{name: pointer(getattr(work, name).whole) if encoder else None for name in WORKSPACE_CROSS},
    )
