"""The two passes over a block with the native step loop. Its plain twin: ``reference.py`` in the folder above.

Only the loops over steps are native; what surrounds them is the fast loop's. Shape suffixes: see
``fb_fairseq/ops/__init__.py``.
"""

import ctypes
from functools import partial
from typing import Optional, Tuple

import torch
from torch import Tensor

from fb_fairseq.ops.feedback.fast.backward import BlockBackward
from fb_fairseq.ops.feedback.fast.block import BlockInputs
from fb_fairseq.ops.feedback.fast.forward import Block, Record
from fb_fairseq.ops.feedback.fast.loop import BlockRun
from fb_fairseq.ops.feedback.fast.tile import Tile
from fb_fairseq.ops.feedback.native.library import (
    BlockArgs,
    LayerArgs,
    Library,
    Mask,
    SetArgs,
    TileArgs,
    pointer,
)
from fb_fairseq.ops.feedback.native.packing import packing_in
from fb_fairseq.ops.layers import ACTIVATIONS, LAYER_NORM_EPS, Dropout
from fb_fairseq.ops.threads import each, each_range

ACTIVATION_NUMBERS = {name: number for number, name in enumerate(ACTIVATIONS)}  # as enum Activation in src/rows.h
RECORD = "attended_x q a p hidden attention_sum ffn_sum crossed_x cross_q cross_a cross_p cross_sum".split()
WORKSPACE = (
    "dq da d_attention d_ffn d_hidden d_attn_norm d_ffn_norm dcq dca d_crossed d_cross_norm dcs "
    "d_kv_ITBZ d_kv_normed_ITBD d_memory_KTBD"
).split()


class NativeBlock(Block):
    """A block whose loop over steps is native."""

    def __init__(self, inputs: BlockInputs, library: Library, threads: int):
        self.library, self.threads = library, threads
        super().__init__(inputs)
        self._packing = packing_in(self.buffers, library)

    def run(self, keep: bool) -> Tuple[Tensor, Optional[Record], Optional[Tensor]]:
        """See ``Block.run``."""
        s, o = self.sizes, self.inputs.options
        record = Record(self, s.T if keep else 1)
        self.arguments = a = self._block_arguments(record, self._first_queries(0, s.T))
        out_TBD = aligned_TBC = None
        if not keep:
            out_TBD = torch.empty_like(self.inputs.x_TBD, memory_format=torch.contiguous_format)
            a.out = out_TBD.data_ptr()
        if o.alignment_layer is not None and self.encoder:
            aligned_TBC = torch.empty(s.T, s.B, a.sources)
            a.aligned, a.alignment_layer = aligned_TBC.data_ptr(), o.alignment_layer
            a.alignment_heads = o.alignment_heads or s.H
        self._run_steps(0, s.T, again=False)
        a.aligned = None
        out_TBD = record.x.whole[-1].clone() if keep else out_TBD
        return out_TBD, record if keep else None, None if aligned_TBC is None else aligned_TBC.transpose(0, 1)

    def run_again(self, record: Record, first: int, last: int) -> None:
        """See ``Block.run_again``."""
        # The record that is pointed to has another number of steps.
        self.point_to_record(self.arguments, record)
        queries = self._first_queries(first, last)
        row = self.sizes.B * self.sizes.X * queries.element_size()
        self.arguments.first_query = queries.data_ptr() - first * row
        self._run_steps(first, last, again=True)

    def _run_steps(self, first: int, last: int, again: bool) -> None:
        forward = partial(self.library.forward, ctypes.byref(self.arguments))
        each_range(lambda b0, b1: forward(b0, b1, first, last, again), self.sizes.B, self.threads)

    def _first_queries(self, first: int, last: int) -> Tensor:
        """Layer 1's queries [T, B, X] of some steps."""
        queries = self.buffers.empty(last - first, self.sizes.B, self.sizes.X, dtype=torch.float32)
        self._queries = torch.stack(self.first_queries(first, last), out=queries)  # stays until the next ones are made
        return self._queries

    def _block_arguments(self, record: Record, queries: Tensor) -> BlockArgs:
        s, inputs, weights, packing = self.sizes, self.inputs, self.weights, self._packing
        a = BlockArgs()
        for name in "TBDLHEFKCSI":
            setattr(a, name, getattr(s, name))
        a.pre_norm, a.activation = int(inputs.options.normalize_before), ACTIVATION_NUMBERS[inputs.options.activation]
        a.scale, a.eps = self.scale, LAYER_NORM_EPS
        self._layers, self._sets = (LayerArgs * s.L)(), (SetArgs * s.I)()
        a.layers, a.sets = ctypes.addressof(self._layers), ctypes.addressof(self._sets)
        each([partial(self._fill_layer, self._layers[l], l) for l in range(s.L)], self.threads)
        for i in range(s.I):
            self._fill_set(self._sets[i], i)
        a.mix = packing.hold(weights.mix_KA)
        if weights.key_positions_SE is not None:
            a.key_positions = packing.pack(weights.key_positions_SE, True)
        if weights.value_positions_SE is not None:
            a.value_positions = packing.pack(weights.value_positions_SE, False)
        a.x, a.first_query = packing.hold(inputs.x_TBD), queries.data_ptr()
        a.memory = pointer(self.memory_KTBD)
        self.point_to_record(a, record)
        for name, mask in inputs.dropouts._asdict().items():
            kind = name.rsplit("_", 1)[0]  # without the letters of the shape
            setattr(a, f"{kind}_mask", self._mask(mask))
        attention = inputs.dropouts.attention_LTBHS
        a.mask_slots = 0 if attention is None else attention.keep.shape[-1]
        a.reach = None if inputs.reach_TB is None else packing.hold(inputs.reach_TB.long())
        if self.encoder:
            a.sources, a.rows_per_source = self.encoder[0].keys_GCE.shape[1], 1
            a.padding = packing.hold(self.encoder[0].padding_BC)
        a.scratch = packing.empty(s.B * self.library.scratch_size(ctypes.byref(a))).data_ptr()
        return a

    def _mask(self, mask: Optional[Dropout]) -> Mask:
        return Mask(None, 1.0) if mask is None else Mask(self._packing.hold(mask.keep), mask.scale)

    def _fill_layer(self, a: LayerArgs, l: int) -> None:
        self._packing.fill_layer(a, self.weights, l)
        a.reach, a.active = self.reaches[l], int(self.inputs.active[l])
        if self.encoder:
            for side, slots_GCE in enumerate(self.encoder[l][:2]):
                a.encoder[side] = self._packing.hold(slots_GCE)

    def _fill_set(self, a: SetArgs, i: int) -> None:
        self._packing.fill_set(a, self.weights, i)
        a.slots[0], a.slots[1] = pointer(self.slots.keys_IGCE[i]), pointer(self.slots.values_IGCE[i])

    def point_to_record(self, a: BlockArgs, record: Record) -> None:
        """Point to the tensors of a record of activations."""
        a.record_steps, a.x_ATBD = record.x.whole.shape[1], pointer(record.x.whole)
        for name in RECORD:
            part = getattr(record, name, None)
            setattr(a, name, None if part is None else pointer(part.whole))

    def pack_transposes(self) -> None:
        """Pack what only the backward pass needs."""
        packing, weights = self._packing, self.weights
        layers = zip(self._layers, weights.layers)
        each([partial(packing.fill_layer_transposes, a, layer) for a, layer in layers], self.threads)
        for a, source in zip(self._sets, weights.sources):
            a.project_t = packing.transpose(weights.key_values[source.projection])
        if weights.key_positions_SE is not None:
            self.arguments.key_positions_t = packing.pack(weights.key_positions_SE, False)
        if weights.value_positions_SE is not None:
            self.arguments.value_positions_t = packing.pack(weights.value_positions_SE, True)


class NativeBackward(BlockBackward):
    """A backward pass whose loop over the steps of a tile is native."""

    def run(self, d_out_TBD: Tensor) -> Tensor:
        """See ``BlockBackward.run``."""
        self.block.pack_transposes()
        return super().run(d_out_TBD.contiguous())

    def _run_tile(self, tile: Tile, d_out_TBD: Tensor, d_x_TBD: Tensor) -> None:
        block, work = self.block, self.work
        block.point_to_record(block.arguments, tile.record)
        a = TileArgs(first=tile.first, steps=tile.steps, at=tile.at, tile_steps=len(work.dq.whole))
        a.W, a.ds, a.p_slots = work.ds_TLGW.shape[-1], pointer(work.ds_TLGW), pointer(work.p_TLGW)
        a.d_out, a.d_x, a.d_slots = pointer(d_out_TBD), pointer(d_x_TBD), pointer(self.sums.slots)
        for name in WORKSPACE:
            part = getattr(work, name, None)
            if part is not None:
                setattr(
                    a, name.rsplit("_", 1)[0] if name[-1].isupper() else name, pointer(getattr(part, "whole", part))
                )
        backward = partial(block.library.backward, ctypes.byref(block.arguments), ctypes.byref(a))
        each_range(backward, block.sizes.B, block.threads)


class NativeRun(BlockRun):
    """The two passes over a block, natively."""

    backward_class = NativeBackward

    def __init__(self, keep: bool, library: Library):
        super().__init__(keep)
        self.library = library

    def make_block(self, inputs: BlockInputs, threads: int) -> Block:
        """See ``BlockRun.make_block``."""
        return NativeBlock(inputs, self.library, threads)

    def largest_product(self, inputs: BlockInputs) -> int:
        """See ``BlockRun.largest_product``. None: streams and layers are shared out to threads instead."""
        return 0
