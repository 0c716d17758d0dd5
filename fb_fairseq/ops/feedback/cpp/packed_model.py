"""A model's weights as decoding steps in C++ read them, and whether they are still the model's."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from fb_fairseq.ops.feedback.cpp.library import Library
from fb_fairseq.ops.feedback.cpp.packing import Packing
from fb_fairseq.ops.feedback.cpp.structures import LATER
from fb_fairseq.ops.feedback.ring import MemoryRing
from fb_fairseq.ops.feedback.types import FeedbackOptions, FeedbackWeights
from fb_fairseq.ops.feedback.weights import compute_weights


class PackedModel:
    """A model's weights, packed once for many steps.

    They are packed again when a parameter was changed in place. Whether it is another tensor than before, or has hooks,
    is looked at when a sequence starts. Then the numbers are compared with a copy of them, too, because torch does not
    count changes through ``parameter.data``.

    Args:
        weights: of the model.
        parameters: those that the weights depend on.
        options: ``span`` is that of the ring.
        library: the compiled functions.

    Attributes:
        weights: in fp32, as ``layers`` and ``sets`` are made of them.
        layers, sets: what C++ reads of each layer, and of each set of keys and values; without what changes from step
            to step.
        size: number of parameters.
        span: that of the ring.
    """

    def __init__(self, weights: FeedbackWeights, parameters: list[Tensor], options: FeedbackOptions, library: Library):
        self.library = library
        self._parameters, self._versions = parameters, versions(parameters)
        self._copies = [parameter.detach().clone() for parameter in parameters]
        self.size, self.span = sum(parameter.numel() for parameter in parameters), options.span
        self.weights = w = compute_weights(weights, options.span, torch.float32, torch.float32)
        self._packing = Packing(library, torch.empty)
        self.layers = [self._packing.layer(w, l, options.span) for l in range(len(w.layers))]
        self.sets = [self._packing.key_values(w, i, (LATER, LATER)) for i in range(len(w.kv_sets))]

    def is_current(self, stack: Any, ring: MemoryRing) -> bool:
        """Whether these are a model's weights, for steps on a ring."""
        if self.span != ring.span:
            return False
        if ring.packed is self:
            return versions(self._parameters) == self._versions
        parameters = stack.step_parameters()
        if versions(parameters) != self._versions or not stack.has_plain_weights():
            return False
        return all(map(torch.equal, parameters, self._copies))


def versions(parameters: Sequence[Tensor]) -> list[tuple[int, int]]:
    """Each parameter's address, and the number of its changes in place."""
    try:
        return [(p.data_ptr(), p._version) for p in parameters]
    except RuntimeError:  # tensors of inference mode count no changes
        return [(p.data_ptr(), 0 if p.is_inference() else p._version) for p in parameters]
