"""The two passes over a block with the native step loop. Its plain twin: ``reference.py`` in the folder above.

Only the loops over steps are native; what surrounds them is the fast loop's. Shape suffixes: see
``fb_fairseq/ops/__init__.py``.
"""

import ctypes
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Callable, List, Optional, Tuple

import torch
from torch import Tensor

from fb_fairseq.ops.fallbacks import log_once
from fb_fairseq.ops.feedback.backward import BlockBackward
from fb_fairseq.ops.feedback.block import BlockInputs
from fb_fairseq.ops.feedback.fast import BlockRun, feedback_block_fast
from fb_fairseq.ops.feedback.forward import Block, Record
from fb_fairseq.ops.feedback.native.library import BlockArgs, LayerArgs, Library, SetArgs, TileArgs, load, pointer
from fb_fairseq.ops.feedback.tile import Tile
from fb_fairseq.ops.layers import ACTIVATIONS, LAYER_NORM_EPS, Affine, Dropout

ACTIVATION_NUMBERS = {name: number for number, name in enumerate(ACTIVATIONS)}  # as enum Activation in src/rows.h

_pool: Optional[ThreadPoolExecutor] = None


def each_range(function: Callable[[int, int], None], streams: int) -> None:
    """Call a function for ranges of streams, one thread each; as many as torch uses. They meet at the end only."""
    global _pool
    threads = min(torch.get_num_threads(), streams)
    if threads == 1:
        return function(0, streams)
    if _pool is None:
        _pool = ThreadPoolExecutor(thread_name_prefix="fb_fairseq step loop")
    bounds = [streams * i // threads for i in range(threads + 1)]
    others = [_pool.submit(function, *bounds[i : i + 2]) for i in range(1, threads)]
    function(*bounds[:2])
    for other in others:
        other.result()


class NativeBlock(Block):
    """A block whose loop over steps is native."""

    def __init__(self, inputs: BlockInputs, library: Library):
        super().__init__(inputs)
        self.library = library
        self._held: List[object] = []  # what the arguments point to

    def hold(self, x: Optional[Tensor]) -> Optional[int]:
        """The pointer of a tensor that must stay as long as the block."""
        if x is not None:
            x = x.detach().contiguous()
            self._held.append(x)
        return pointer(x)

    def pack(self, weight: Tensor, transposed: bool) -> int:
        """The pointer of a packed matrix: of ``weight`` [K, N], or of the transpose of ``weight`` [N, K]."""
        weight = weight.detach()
        rows, columns = weight.stride()
        (K, N) = weight.shape if not transposed else weight.shape[::-1]
        packed = self.buffers.empty(self.library.packed_size(K, N), dtype=torch.float32)
        strides = (columns, rows) if transposed else (rows, columns)
        self.library.pack(weight.data_ptr(), K, N, *strides, packed.data_ptr())
        self._held.append(packed)
        return packed.data_ptr()

    def run(self, keep: bool) -> Tuple[Tensor, Optional[Record], Optional[Tensor]]:
        """See ``Block.run``."""
        s = self.sizes
        record = Record(self, s.T if keep else 1)
        self.arguments = self._block_arguments(record, self._first_queries(0, s.T))
        out_TBD = None
        if not keep:
            out_TBD = torch.empty_like(self.inputs.x_TBD, memory_format=torch.contiguous_format)
            self.arguments.out = out_TBD.data_ptr()
        forward = partial(self.library.forward, ctypes.byref(self.arguments))
        each_range(lambda b0, b1: forward(b0, b1, 0, s.T, 0, 0), s.B)
        return record.x.whole[-1].clone() if keep else out_TBD, record if keep else None, None

    def run_again(self, record: Record, first: int, last: int) -> None:
        """Compute the activations of some steps again."""
        # The record that is pointed to has another number of steps.
        self.point_to_record(self.arguments, record)
        queries = self._first_queries(first, last)
        row = self.sizes.B * self.sizes.X * queries.element_size()
        self.arguments.first_query = queries.data_ptr() - first * row
        forward = partial(self.library.forward, ctypes.byref(self.arguments))
        each_range(lambda b0, b1: forward(b0, b1, first, last, 0, 1), self.sizes.B)

    def _first_queries(self, first: int, last: int) -> Tensor:
        """Layer 1's queries [T, B, X] of some steps."""
        queries = self.buffers.empty(last - first, self.sizes.B, self.sizes.X, dtype=torch.float32)
        self._queries = torch.stack(self.first_queries(first, last), out=queries)  # stays until the next ones are made
        return self._queries

    def _block_arguments(self, record: Record, queries: Tensor) -> BlockArgs:
        s, inputs, weights = self.sizes, self.inputs, self.weights
        a = BlockArgs()
        for name in "TBDLHEFKCSI":
            setattr(a, name, getattr(s, name))
        a.pre_norm, a.activation = int(inputs.options.normalize_before), ACTIVATION_NUMBERS[inputs.options.activation]
        a.scale, a.eps = self.scale, LAYER_NORM_EPS
        self._layers, self._sets = (LayerArgs * s.L)(), (SetArgs * s.I)()
        a.layers, a.sets = ctypes.addressof(self._layers), ctypes.addressof(self._sets)
        for l in range(s.L):
            self._fill_layer(self._layers[l], l)
        for i in range(s.I):
            self._fill_set(self._sets[i], i)
        a.mix = self.hold(weights.mix_KA)
        if weights.key_positions_SE is not None:
            a.key_positions = self.pack(weights.key_positions_SE, True)
        if weights.value_positions_SE is not None:
            a.value_positions = self.pack(weights.value_positions_SE, False)
        a.x, a.first_query, a.memory = self.hold(inputs.x_TBD), queries.data_ptr(), pointer(self.memory_KTBD)
        self.point_to_record(a, record)
        masks = inputs.dropouts
        a.attention_keep, a.attention_scale = self._mask(masks.attention_LTBHS)
        a.hidden_keep, a.hidden_scale = self._mask(masks.hidden_LTBF)
        a.attention_residual_keep, a.attention_residual_scale = self._mask(masks.attention_residual_LTBD)
        a.ffn_residual_keep, a.ffn_residual_scale = self._mask(masks.ffn_residual_LTBD)
        a.mask_slots = 0 if masks.attention_LTBHS is None else masks.attention_LTBHS.keep.shape[-1]
        a.reach = None if inputs.reach_TB is None else self.hold(inputs.reach_TB.long())
        dot = self.library.slot_panel_size(s.C + s.T) + 2 * self.library.vector_length
        a.scratch_size = max(2 * s.H * s.S + dot + s.X + s.D, s.F, s.D + 2 * s.X, 2 * s.D, s.T * s.L) + s.D
        self._scratch = self.buffers.empty(s.B * a.scratch_size, dtype=torch.float32)
        a.scratch = self._scratch.data_ptr()
        return a

    def _fill_layer(self, a: LayerArgs, l: int) -> None:
        layer, span = self.weights.layers[l], self.weights.spans[l]
        for name in ("query", "out", "fc1", "fc2"):
            affine: Affine = getattr(layer, name)
            setattr(a, name, self.pack(affine.weight, True))
            setattr(a, f"{name}_bias", self.hold(affine.bias))
        for name in ("attn_norm", "ffn_norm"):
            norm: Affine = getattr(layer, name)
            setattr(a, f"{name}_weight", self.hold(norm.weight))
            setattr(a, f"{name}_bias", self.hold(norm.bias))
        if span is not None:
            a.log_mask, a.outside = self.hold(span.log_mask_HS), self.hold(span.outside_HS)
        a.reach, a.active, a.set = self.reaches[l], int(self.inputs.active[l]), l if self.sizes.I > 1 else 0

    def _fill_set(self, a: SetArgs, i: int) -> None:
        s, source = self.sizes, self.weights.sources[i]
        affine, norm = self.weights.key_values[source.projection], self.weights.projections[source.projection].norm
        a.project, a.project_bias, a.memory = self.pack(affine.weight, True), self.hold(affine.bias), source.memory
        if norm is not None:
            a.norm_weight, a.norm_bias = self.hold(norm.weight), self.hold(norm.bias)
        for side, rows in (("key", self.slots.keys_IGCE[i]), ("value", self.slots.values_IGCE[i])):
            panels = self.buffers.empty(s.G, self.library.slot_panel_size(s.C + s.T), s.E, dtype=torch.float32)
            self._held.append(panels)
            self.library.fill_panels(rows.data_ptr(), s.G, s.C + s.T, s.C, s.E, panels.data_ptr())
            setattr(a, f"{side}_rows", rows.data_ptr())
            setattr(a, f"{side}_panels", panels.data_ptr())

    def point_to_record(self, a: BlockArgs, record: Record) -> None:
        """Point to the tensors of a record of activations."""
        a.record_steps = record.x.whole.shape[1]
        a.x_ATBD, a.attended_x = pointer(record.x.whole), pointer(record.attended_x.whole)
        a.q, a.a, a.p, a.hidden = (pointer(x.whole) for x in (record.q, record.a, record.p, record.hidden))
        if record.attention_sum is not None:
            a.attention_sum, a.ffn_sum = pointer(record.attention_sum.whole), pointer(record.ffn_sum.whole)

    def _mask(self, mask: Optional[Dropout]) -> Tuple[Optional[int], float]:
        return (None, 1.0) if mask is None else (self.hold(mask.keep), mask.scale)

    def pack_transposes(self) -> None:
        """Pack what only the backward pass needs."""
        for a, layer in zip(self._layers, self.weights.layers):
            for name in ("query", "out", "fc1", "fc2"):
                setattr(a, f"{name}_t", self.pack(getattr(layer, name).weight, False))
        for a, source in zip(self._sets, self.weights.sources):
            a.project_t = self.pack(self.weights.key_values[source.projection].weight, False)
        if self.weights.key_positions_SE is not None:
            self.arguments.key_positions_t = self.pack(self.weights.key_positions_SE, False)
        if self.weights.value_positions_SE is not None:
            self.arguments.value_positions_t = self.pack(self.weights.value_positions_SE, True)


class NativeBackward(BlockBackward):
    """A backward pass whose loop over the steps of a tile is native."""

    def run(self, d_out_TBD: Tensor) -> Tensor:
        """See ``BlockBackward.run``."""
        self.block.pack_transposes()
        return super().run(d_out_TBD.contiguous())

    def _recompute(self, record: Record, first: int, last: int) -> None:
        if self.block.ragged:
            record.p.whole.zero_()
        self.block.run_again(record, first, last)

    def _run_tile(self, tile: Tile, d_out_TBD: Tensor, d_x_TBD: Tensor) -> None:
        block, work = self.block, self.work
        block.point_to_record(block.arguments, tile.record)
        a = TileArgs(first=tile.first, steps=tile.steps, at=tile.at, tile_steps=len(work.dq.whole))
        a.W = work.ds_TLGW.shape[-1]
        a.d_out, a.d_x = pointer(d_out_TBD), pointer(d_x_TBD)
        for name in "dq da d_attention d_ffn d_hidden d_attn_norm d_ffn_norm".split():
            setattr(a, name, pointer(getattr(work, name).whole))
        a.d_kv, a.d_kv_normed = pointer(work.d_kv_ITBZ), pointer(work.d_kv_normed_ITBD)
        a.d_memory, a.ds, a.p_slots = pointer(work.d_memory_KTBD), pointer(work.ds_TLGW), pointer(work.p_TLGW)
        a.d_slots = pointer(self.sums.slots)
        backward = partial(block.library.backward, ctypes.byref(block.arguments), ctypes.byref(a))
        each_range(backward, block.sizes.B)


class NativeRun(BlockRun):
    """The two passes over a block, natively."""

    def __init__(self, keep: bool, library: Library):
        super().__init__(keep)
        self.library = library

    def make_block(self, inputs: BlockInputs) -> Block:
        """See ``BlockRun.make_block``."""
        return NativeBlock(inputs, self.library)

    backward_class = NativeBackward


def covers(inputs: BlockInputs) -> bool:
    """Whether the native loop can run a block: fp32, on a CPU, without attention to an encoder."""
    fp32 = inputs.dtype == inputs.x_TBD.dtype == torch.float32 == inputs.weights.layers[0].query.weight.dtype
    return fp32 and inputs.x_TBD.device.type == "cpu" and not inputs.encoder


def choose_run(inputs: BlockInputs, keep: bool) -> BlockRun:
    """The native loop for a block, where it is available and covers the block; else the fast loop."""
    if not covers(inputs):
        log_once("--step-loop native: runs in fp32 on a CPU, without an encoder; here the fast loop runs")
        return BlockRun(keep)
    library = load()
    return BlockRun(keep) if library is None else NativeRun(keep, library)


feedback_block_native = partial(feedback_block_fast, choose_run=choose_run)
