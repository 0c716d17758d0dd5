"""The calls of C++ for a block. Its plain twin: ``reference.py`` in the folder above.

Shape suffixes: see ``fb_fairseq/ops/__init__.py``.
"""

import ctypes
from functools import partial

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
from fb_fairseq.ops.feedback.cpp.packing import Packing
from fb_fairseq.ops.feedback.cpp.structures import (
    LATER,
    POINTER,
    BlockArgs,
    BlockTransposes,
    LayerArgs,
    LayerTransposes,
    SetArgs,
)
from fb_fairseq.ops.feedback.loop import Results
from fb_fairseq.ops.feedback.torch.block import Block, Record
from fb_fairseq.ops.feedback.torch.tile import Tile
from fb_fairseq.ops.threads import each, each_range


class BlockCalls:
    """A block's weights, packed, and the calls that run its steps. (It does not hold the block, which holds it.)"""

    def __init__(self, block: Block, library: Library):
        self.library, self._packing = library, Packing(library, partial(block.buffers.empty, dtype=torch.float32))
        self._transposes: BlockTransposes | None = None
        self._pack(block)
        encoder = None
        if block.encoder:
            encoder = EncoderShape(block.room.sources, block.sizes.B, block.encoder[0].padding_BC)
        self._recorded = recorded(block.inputs.options, bool(encoder))
        self._arguments = block_arguments(
            self._packing,
            block.sizes,
            block.weights,
            block.inputs.options,
            layers=self._layers,
            sets=self._sets,
            record=record_arguments(1, dict.fromkeys(self._recorded, LATER)),
            encoder=encoder,
            dropouts=block.inputs.dropouts,
            reach_TB=block.inputs.reach_TB,
            x=self._packing.hold(block.inputs.x_TBD),
            first_query=None,
            memory=pointer(block.memory_KTBD),
            out=None,
            aligned=None,
        )

    def forward(self, block: Block, record: Record, first: int, last: int, results: Results | None) -> None:
        """Run some steps; see ``Loop.forward_steps``."""
        s, again, arguments = block.sizes, results is None, self._on(record)
        queries_TBX = block.buffers.empty(last - first, s.B, s.X, dtype=torch.float32)
        torch.stack(block.first_queries(first, last), out=queries_TBX)
        arguments.first_query = pointer(queries_TBX) - first * s.B * s.X * queries_TBX.element_size()
        if not again:
            arguments.out, arguments.aligned = map(pointer, results)
        forward = partial(self.library.forward, ctypes.byref(arguments))
        each_range(lambda b0, b1: forward(b0, b1, first, last, again), s.B, block.threads)
        arguments.out = arguments.aligned = None

    def backward(self, block: Block, tile: Tile, d_out_TBD: Tensor, d_x_TBD: Tensor) -> None:
        """Run a tile's steps backward; see ``Loop.backward_tile``."""
        if self._transposes is None:
            self._transposes = self._pack_transposes(block)
        call = tile_arguments(tile, ctypes.addressof(self._transposes), d_out_TBD, d_x_TBD)
        backward = partial(self.library.backward, ctypes.byref(self._on(tile.record)), ctypes.byref(call))
        each_range(backward, block.sizes.B, block.threads)

    def _on(self, record: Record) -> BlockArgs:
        """The arguments of a call that works on a record."""
        pointers = {name: pointer(getattr(record, name).whole) for name in self._recorded}
        self._arguments.record = record_arguments(record.steps, pointers)
        return self._arguments

    def _pack(self, block: Block) -> None:
        """Pack the weights of the forward pass."""
        s, packing = block.sizes, self._packing
        self._layers, self._sets = (LayerArgs * s.L)(), (SetArgs * s.I)()

        def pack_layer(l: int) -> None:
            encoder = tuple(map(packing.hold, block.encoder[l][:2])) if block.encoder else None
            self._layers[l] = packing.layer(block.weights, l, block.reaches[l], block.inputs.active[l], encoder)

        each([partial(pack_layer, l) for l in range(s.L)], block.threads)
        for i in range(s.I):
            slots = pointer(block.slots.keys_IGCE[i]), pointer(block.slots.values_IGCE[i])
            self._sets[i] = packing.key_values(block.weights, i, slots)

    def _pack_transposes(self, block: Block) -> BlockTransposes:
        """Pack what only the backward pass needs of the weights."""
        s, packing, weights = block.sizes, self._packing, block.weights
        self._layer_transposes, self._projects = (LayerTransposes * s.L)(), (POINTER * s.I)()

        def pack_layer(l: int) -> None:
            self._layer_transposes[l] = packing.layer_transposes(weights.layers[l])

        each([partial(pack_layer, l) for l in range(s.L)], block.threads)
        for i, source in enumerate(weights.sources):
            self._projects[i] = packing.transpose(weights.key_values[source.projection])
        return BlockTransposes(
            layers=ctypes.addressof(self._layer_transposes),
            projects=ctypes.addressof(self._projects),
            key_positions=packing.positions(weights.key_positions_SE, s.S, False),
            value_positions=packing.positions(weights.value_positions_SE, s.S, True),
        )
