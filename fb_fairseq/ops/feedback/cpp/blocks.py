"""The two passes over a block with the step loop in C++. Its plain twin: ``reference.py`` in the folder above.

Only the loops over steps are native; what surrounds them is the torch loop's. Shape suffixes: see
``fb_fairseq/ops/__init__.py``.
"""

import ctypes
from functools import partial
from typing import Optional, Tuple

import torch
from torch import Tensor

from fb_fairseq.ops.feedback.cpp.arguments import (
    EncoderShape,
    block_arguments,
    record_arguments,
    recorded,
    tile_arguments,
)
from fb_fairseq.ops.feedback.cpp.library import Library, pointer
from fb_fairseq.ops.feedback.cpp.packing import packing_in
from fb_fairseq.ops.feedback.cpp.structures import (
    POINTER,
    BlockTransposes,
    LayerArgs,
    LayerTransposes,
    RecordArgs,
    SetArgs,
)
from fb_fairseq.ops.feedback.torch.backward import BlockBackward
from fb_fairseq.ops.feedback.torch.block import BlockInputs
from fb_fairseq.ops.feedback.torch.forward import Block, Record
from fb_fairseq.ops.feedback.torch.loop import BlockRun
from fb_fairseq.ops.feedback.torch.tile import Tile
from fb_fairseq.ops.threads import each, each_range


class CppBlock(Block):
    """A block whose loop over steps is native."""

    def __init__(self, inputs: BlockInputs, library: Library, threads: int):
        super().__init__(inputs, threads)
        self.library, self._packing = library, packing_in(self.buffers, library)

    def run(self, keep: bool) -> Tuple[Tensor, Optional[Record], Optional[Tensor]]:
        """See ``Block.run``."""
        s, x_TBD = self.sizes, self.inputs.x_TBD
        record = Record(self, s.T if keep else 1)
        out_TBD = None if keep else torch.empty_like(x_TBD, memory_format=torch.contiguous_format)
        aligned_TBC = encoder = None
        if self.encoder:
            sources = self.encoder[0].keys_GCE.shape[1]
            encoder = EncoderShape(sources, s.B, self.encoder[0].padding_BC)
            if self.inputs.options.alignment_layer is not None:
                aligned_TBC = torch.empty(s.T, s.B, sources)
        self._pack()
        self.arguments = block_arguments(
            self._packing,
            s,
            self.weights,
            self.inputs.options,
            layers=self._layers,
            sets=self._sets,
            record=self._record_arguments(record),
            encoder=encoder,
            dropouts=self.inputs.dropouts,
            reach_TB=self.inputs.reach_TB,
            x=self._packing.hold(x_TBD),
            first_query=pointer(self._first_queries(0, s.T)),
            memory=pointer(self.memory_KTBD),
            out=pointer(out_TBD),
            aligned=pointer(aligned_TBC),
        )
        self._run_steps(0, s.T, again=False)
        self.arguments.out = self.arguments.aligned = None
        out_TBD = record.x.whole[-1].clone() if keep else out_TBD
        return out_TBD, record if keep else None, None if aligned_TBC is None else aligned_TBC.transpose(0, 1)

    def run_again(self, record: Record, first: int, last: int) -> None:
        """See ``Block.run_again``."""
        # The record that is pointed to has another number of steps.
        self.arguments.record = self._record_arguments(record)
        queries = self._first_queries(first, last)
        row = self.sizes.B * self.sizes.X * queries.element_size()
        self.arguments.first_query = pointer(queries) - first * row
        self._run_steps(first, last, again=True)

    def _run_steps(self, first: int, last: int, again: bool) -> None:
        forward = partial(self.library.forward, ctypes.byref(self.arguments))
        each_range(lambda b0, b1: forward(b0, b1, first, last, again), self.sizes.B, self.threads)

    def _first_queries(self, first: int, last: int) -> Tensor:
        """Layer 1's queries [T, B, X] of some steps."""
        queries = self.buffers.empty(last - first, self.sizes.B, self.sizes.X, dtype=torch.float32)
        self._queries = torch.stack(self.first_queries(first, last), out=queries)  # stays until the next ones are made
        return self._queries

    def _record_arguments(self, record: Record) -> RecordArgs:
        """Where the tensors of a record lie."""
        names = recorded(self.inputs.options, bool(self.encoder))
        pointers = {name: pointer(getattr(record, name).whole) for name in names}
        return record_arguments(record.x.whole.shape[1], pointers)

    def _pack(self) -> None:
        """Pack the weights of the forward pass."""
        s, packing, weights = self.sizes, self._packing, self.weights
        self._layers, self._sets = (LayerArgs * s.L)(), (SetArgs * s.I)()

        def pack_layer(l: int) -> None:
            encoder = tuple(map(packing.hold, self.encoder[l][:2])) if self.encoder else None
            self._layers[l] = packing.layer(weights, l, self.reaches[l], self.inputs.active[l], encoder)

        each([partial(pack_layer, l) for l in range(s.L)], self.threads)
        for i in range(s.I):
            slots = pointer(self.slots.keys_IGCE[i]), pointer(self.slots.values_IGCE[i])
            self._sets[i] = packing.key_values(weights, i, slots)

    def pack_transposes(self) -> BlockTransposes:
        """Pack what only the backward pass needs of the weights."""
        s, packing, weights = self.sizes, self._packing, self.weights
        self._layer_transposes, self._projects = (LayerTransposes * s.L)(), (POINTER * s.I)()

        def pack_layer(l: int) -> None:
            self._layer_transposes[l] = packing.layer_transposes(weights.layers[l])

        each([partial(pack_layer, l) for l in range(s.L)], self.threads)
        for i, source in enumerate(weights.sources):
            self._projects[i] = packing.transpose(weights.key_values[source.projection])
        return BlockTransposes(
            layers=ctypes.addressof(self._layer_transposes),
            projects=ctypes.addressof(self._projects),
            key_positions=packing.positions(weights.key_positions_SE, s.S, False),
            value_positions=packing.positions(weights.value_positions_SE, s.S, True),
        )


class CppBackward(BlockBackward):
    """A backward pass whose loop over the steps of a tile is native."""

    def run(self, d_out_TBD: Tensor) -> Tensor:
        """See ``BlockBackward.run``."""
        self._transposes = self.block.pack_transposes()
        return super().run(d_out_TBD.contiguous())

    def _run_tile(self, tile: Tile, d_out_TBD: Tensor, d_x_TBD: Tensor) -> None:
        block = self.block  # its arguments point to the tile's record since that was computed
        transposes = ctypes.addressof(self._transposes)
        arguments = tile_arguments(tile, self.work, transposes, d_out_TBD, d_x_TBD, self.sums.slots)
        backward = partial(block.library.backward, ctypes.byref(block.arguments), ctypes.byref(arguments))
        each_range(backward, block.sizes.B, block.threads)


class CppRun(BlockRun):
    """The two passes over a block, natively."""

    backward_class = CppBackward

    def __init__(self, keep: bool, library: Library):
        super().__init__(keep)
        self.library = library

    def make_block(self, inputs: BlockInputs, threads: int) -> Block:
        """See ``BlockRun.make_block``."""
        return CppBlock(inputs, self.library, threads)

    def largest_product(self, inputs: BlockInputs) -> int:
        """See ``BlockRun.largest_product``. None: streams and layers are shared out to threads instead."""
        return 0
