"""A block's data: sizes, weights, slots for keys and values, and what makes its records of activations."""

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fb_fairseq.ops.buffers import Buffers
from fb_fairseq.ops.feedback.record import Allocator, Record
from fb_fairseq.ops.feedback.types import BlockInputs, EncoderContext, Sizes, block_sizes
from fb_fairseq.ops.feedback.weights import ComputeWeights, compute_weights, contiguous
from fb_fairseq.ops.layers import layer_norm, linear
from fb_fairseq.ops.thread_pool import each

# Steps outside the loop are projected in pieces of about this many rows: enough for an efficient matrix
# product, few enough that a CPU takes the memory for the result from its allocator's free lists instead of from the
# system.
PROJECTION_ROWS = 512


class KeyValueSlots:
    """Keys and values of the carried memory and of the block's own steps: C slots, then one per step.

    Nothing is concatenated: a step attends to a view of the last slots, and writes its own keys and values behind it.
    """

    def __init__(self, sizes: Sizes, weights: ComputeWeights, buffers: Buffers, dtype: torch.dtype):
        self.sizes, self.weights, self.dtype = sizes, weights, dtype
        shape = (sizes.I, sizes.G, sizes.C + sizes.T, sizes.E)
        self.keys_IGCE = buffers.empty(*shape, dtype=dtype)
        self.values_IGCE = buffers.empty(*shape, dtype=dtype)

    def project(self, memory_KRD: Tensor, slot: int, steps: int) -> None:
        """Write keys and values of the memories [K, steps x B, D] of consecutive steps, from ``slot`` on."""
        s = self.sizes
        for i, kv in enumerate(self.weights.kv_sets):
            norm = self.weights.projections[kv.projection].norm
            normed_RD = layer_norm(memory_KRD[kv.memory], norm).to(self.dtype)
            both = linear(normed_RD, self.weights.key_values[kv.projection]).view(steps, s.B, 2, s.H, s.E)
            for slots_GCE, new in ((self.keys_IGCE[i], both[:, :, 0]), (self.values_IGCE[i], both[:, :, 1])):
                slots_GCE.view(s.B, s.H, -1, s.E)[:, :, slot : slot + steps] = new.permute(1, 2, 0, 3)


class EncoderSlots(NamedTuple):
    """One layer's keys and values of the encoder's output, in the compute type, contiguous.

    Attributes:
        keys_GCE, values_GCE: head by head.
        padding_BC: True where the source is padded; None: nowhere.
    """

    keys_GCE: Tensor
    values_GCE: Tensor
    padding_BC: Tensor | None


def encoder_slots(context: EncoderContext, dtype: torch.dtype) -> EncoderSlots:
    """A layer's keys and values of the encoder's output, head by head."""
    keys, values = (x.to(dtype).permute(1, 2, 0, 3).flatten(0, 1) for x in context[:2])
    return contiguous(EncoderSlots(keys, values, context.padding_BC))


def pieces(steps: int, streams: int, device: torch.device) -> list[slice]:
    """Slices of ``range(steps)``, on a CPU of about ``PROJECTION_ROWS`` rows each."""
    size = max(1, PROJECTION_ROWS // streams if device.type == "cpu" else steps)
    return [slice(first, min(first + size, steps)) for first in range(0, steps, size)]


class Block:
    """A block: whatever its steps read, and where they write, except the record of activations.

    Args:
        inputs: its arguments.
        records_weights: see ``Loop``.
        threads: how many share what is done outside of the loop over steps.

    Attributes:
        sizes: its sizes.
        weights: its weights in the compute type.
        encoder: each layer's keys and values of the encoder's output; empty without one.
        dtype: the compute type, that of matrix products.
        wide: the type of softmax and of sums over steps, at least fp32.
        scale: by which attention's scores are multiplied, 1 / √E.
        buffers, allocator: where the memory of its tensors comes from.
        slots: keys and values of the carried memory and of the block's steps.
        out_TBD, memory_KTBD: the outputs, and the memories that the steps leave.
        reaches: how many steps back each layer reaches.
        ragged: some steps or layers reach fewer than S slots.
        own: anything that the loop keeps for the block; None at first.
    """

    def __init__(self, inputs: BlockInputs, records_weights: bool = True, threads: int = 1):
        self.inputs = inputs
        self.records_weights = records_weights
        self.threads = threads
        self.own: Any = None
        self.sizes = s = block_sizes(inputs)
        device, options = inputs.x_TBD.device, inputs.options
        self.weights = compute_weights(inputs.weights, s.S, inputs.dtype, inputs.x_TBD.dtype)
        self.buffers = Buffers(device)
        self.encoder = [encoder_slots(context, inputs.dtype) for context in inputs.encoder]
        post_norm = not options.normalize_before
        self.allocator = Allocator(s, self.buffers, inputs.dtype, inputs.x_TBD.dtype, post_norm=post_norm)
        self.dtype = inputs.dtype
        self.wide = self.allocator.wide
        self.scale = s.E**-0.5
        spans = [layer.span_mask_HS for layer in inputs.weights.layers]
        self.reaches = [s.S if span is None else min(s.S, span.shape[1]) for span in spans]
        self.ragged = s.C < s.S or min(self.reaches) < s.S
        self.slots = KeyValueSlots(s, self.weights, self.buffers, self.dtype)
        self.out_TBD = inputs.x_TBD.new_empty(s.T, s.B, s.D)
        self.memory_KTBD = inputs.x_TBD.new_empty(s.K, s.T, s.B, s.D)
        each([partial(self._project_carried, steps) for steps in pieces(s.C, s.B, device)], threads)

    def _project_carried(self, steps: slice) -> None:
        """Write keys and values of some steps of the carried memory."""
        memory_KRD = self.inputs.memory_KCBD[:, steps].flatten(1, 2)
        self.slots.project(memory_KRD, steps.start, steps.stop - steps.start)

    def record(self, steps: int) -> Record:
        """A new record of some steps' activations."""
        return Record(self.allocator, steps, self.records_weights, self.ragged)

    def first_queries(self, first: int, last: int) -> Sequence[Tensor]:
        """Layer 1's queries [B, X] of the steps first … last - 1: they depend on the embeddings alone."""
        layer, queries = self.weights.layers[0], []
        x_TBD = self.inputs.x_TBD[first:last]
        for steps in pieces(len(x_TBD), self.sizes.B, x_TBD.device):
            x = layer_norm(x_TBD[steps], layer.attn_norm if self.inputs.options.normalize_before else None)
            queries += linear(x.to(self.dtype), layer.query).unbind(0)
        return queries
