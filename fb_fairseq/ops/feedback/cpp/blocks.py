"""The calls of C++ for a block."""

import ctypes
from functools import partial

import torch
from torch import Tensor

from fb_fairseq.ops.feedback.block import Block
from fb_fairseq.ops.feedback.cpp.arguments import block_arguments, record_arguments, tile_arguments
from fb_fairseq.ops.feedback.cpp.library import POINTER, Library, pointer
from fb_fairseq.ops.feedback.cpp.packing import Packing
from fb_fairseq.ops.feedback.cpp.structures import BlockTransposes, LayerArgs, LayerTransposes, SetArgs
from fb_fairseq.ops.feedback.record import Record
from fb_fairseq.ops.feedback.tile import Tile
from fb_fairseq.ops.thread_pool import each, each_range


class BlockCalls:
    """A block's weights, packed, and the calls that run its steps.

    (The block holds this object. A reference back would be a cycle, which would keep the block's buffers for longer.)
    """

    def __init__(self, block: Block, record: Record, library: Library):
        self.library, self._packing = library, Packing(library, partial(block.buffers.empty, dtype=torch.float32))
        self._transposes: BlockTransposes | None = None
        self._layers, self._sets = self._pack(block)  # (kept, as C++ has pointers to them)
        self._arguments = block_arguments(
            self._packing,
            block.sizes,
            block.weights,
            block.inputs.options,
            layers=self._layers,
            sets=self._sets,
            record=record_arguments(record),  # has to be given; each call sets its own
            sentences=block.sizes.B,
            padding_BC=block.encoder[0].padding_BC if block.encoder else None,
            dropouts=block.inputs.dropouts,
            age_TB=block.inputs.age_TB,
            x=self._packing.hold(block.inputs.x_TBD),
            memory=pointer(block.memory_KTBD),
            out=pointer(block.out_TBD),
        )

    def forward(self, block: Block, record: Record, first: int, last: int, again: bool) -> None:
        """Run some steps; see ``Loop.forward_steps``."""
        s, arguments = block.sizes, self._arguments
        arguments.record = record_arguments(record)
        queries_TBX = block.buffers.empty(last - first, s.B, s.X, dtype=torch.float32)
        torch.stack(block.first_queries(first, last), out=queries_TBX)
        # C++ counts from the first step of the block.
        arguments.first_query = pointer(queries_TBX) - first * s.B * s.X * queries_TBX.element_size()
        forward = partial(self.library.forward, ctypes.byref(arguments))
        each_range(lambda b0, b1: forward(b0, b1, first, last, again), s.B, block.threads)

    def backward(self, block: Block, tile: Tile, d_out_TBD: Tensor, d_x_TBD: Tensor) -> None:
        """Run a tile's steps backward; see ``Loop.backward_tile``."""
        if self._transposes is None:
            self._transposes = self._pack_transposes(block)
        call = tile_arguments(tile, ctypes.addressof(self._transposes), d_out_TBD, d_x_TBD)
        self._arguments.record = record_arguments(tile.record)
        backward = partial(self.library.backward, ctypes.byref(self._arguments), ctypes.byref(call))
        each_range(backward, block.sizes.B, block.threads)

    def _pack(self, block: Block) -> tuple[ctypes.Array, ctypes.Array]:
        """Pack the weights of the forward pass: those of each layer, and of each set of keys and values."""
        s, packing = block.sizes, self._packing
        layers = (LayerArgs * s.L)()
        sets = (SetArgs * s.I)()

        def pack_layer(l: int) -> None:
            encoder = tuple(map(packing.hold, block.encoder[l][:2])) if block.encoder else None
            layers[l] = packing.layer(block.weights, l, block.reaches[l], encoder)

        each([partial(pack_layer, l) for l in range(s.L)], block.threads)
        for i in range(s.I):
            slots = pointer(block.slots.keys_IGCE[i]), pointer(block.slots.values_IGCE[i])
            sets[i] = packing.key_values(block.weights, i, slots)
        return layers, sets

    def _pack_transposes(self, block: Block) -> BlockTransposes:
        """Pack what only the backward pass needs of the weights."""
        s, packing, weights = block.sizes, self._packing, block.weights
        # Attributes, because what is returned has pointers to them.
        self._layer_transposes, self._projects = (LayerTransposes * s.L)(), (POINTER * s.I)()

        def pack_layer(l: int) -> None:
            self._layer_transposes[l] = packing.layer_transposes(weights.layers[l])

        each([partial(pack_layer, l) for l in range(s.L)], block.threads)
        for i, kv in enumerate(weights.kv_sets):
            self._projects[i] = packing.transpose(weights.key_values[kv.projection])
        return BlockTransposes(
            layers=ctypes.addressof(self._layer_transposes),
            projects=ctypes.addressof(self._projects),
            key_positions=packing.positions(weights.positions.key_SE, s.S, transposed=False),
            value_positions=packing.positions(weights.positions.value_SE, s.S, transposed=True),
        )
