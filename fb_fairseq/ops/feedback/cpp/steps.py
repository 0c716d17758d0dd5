"""Decoding steps in C++, with weights that stay packed as long as the parameters do not change.

Its reference: ``feedback_step`` in the folder above.
"""

import threading
from typing import Any

import torch

from fb_fairseq.ops.feedback.cpp.library import load
from fb_fairseq.ops.feedback.cpp.packed_model import PackedModel
from fb_fairseq.ops.feedback.cpp.step_call import StepCall
from fb_fairseq.ops.feedback.ring import KEYS_VALUES
from fb_fairseq.ops.feedback.step_inputs import StepInputs
from fb_fairseq.ops.feedback.types import StepOutput
from fb_fairseq.ops.layers import has_modules


class CppStep:
    """The steps of a model whose weights are packed.

    Args:
        model: the packed weights.
    """

    def __init__(self, model: PackedModel):
        self.model = model
        self._lock = threading.Lock()
        self._call: StepCall | None = None

    def run(self, inputs: StepInputs) -> StepOutput:
        """Run a step in fp32, and write its keys and values to the ring's next slot.

        Raises:
            ValueError: the ring has another number of streams, or the encoder's sentences do not divide it.
        """
        x_BD, ring, options, encoder = inputs
        B = len(x_BD)
        streams = B
        if ring.origin_BC is not None:
            streams = len(ring.origin_BC)
        elif ring.buffer is not None:
            streams = ring.buffer.shape[1]
        sentences = encoder[0].keys_CBHE.shape[1] if encoder else 1
        if B != streams or streams % sentences:
            raise ValueError(f"a step of {B} rows; the memory has {streams} streams, of {sentences} sentences")
        if ring.buffer is None:
            head_dim = len(self.model.weights.layers[0].query.weight) // options.heads
            ring.buffer = torch.zeros(2 * len(self.model.sets), B, options.heads, ring.slots, head_dim)
        if ring.graph is not None:
            ring.release()
        ring.packed = self.model
        with self._lock:  # the call's memory is shared by all rings
            if self._call is None or not self._call.serves(inputs):
                self._call = StepCall(self.model, inputs)
            return self._call.run(inputs)


def packed_step(kept: dict[str, Any], stack: Any, inputs: StepInputs) -> CppStep | None:
    """The steps of a model: those in ``kept`` as long as the parameters do not change, or with weights packed anew.

    None where steps in C++ do not cover this one, because of the types of parameters, or of adapters. (``covers`` has
    passed.)
    """
    step = kept.get("step")
    if step is None or not step.model.is_current(stack, inputs.ring):
        parameters = stack.step_parameters()
        if any(p.dtype != torch.float32 or p.device.type != "cpu" for p in parameters):
            return None
        weights = stack.step_weights(inputs.ring, inputs.x_BD.device)
        if has_modules(weights):
            return None
        step = kept["step"] = CppStep(PackedModel(weights, parameters, inputs.options, load().library))
    return step


def covers(stack: Any, inputs: StepInputs) -> bool:
    """Whether steps in C++ cover a step. They do in fp32 on a CPU without gradients, on rings of keys and values."""
    x_BD, ring = inputs.x_BD, inputs.ring
    if torch.is_grad_enabled() or x_BD.device.type != "cpu" or x_BD.dtype != torch.float32 or not len(x_BD):
        return False
    if torch.is_autocast_enabled("cpu") or not stack.uses_feedback_step:
        return False
    fits = ring.buffer is None or (ring.buffer.dtype == torch.float32 and ring.buffer.device.type == "cpu")
    return fits and ring.storage == KEYS_VALUES
