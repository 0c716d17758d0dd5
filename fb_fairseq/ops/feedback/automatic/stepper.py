"""``--step-loop auto`` for decoding steps: on a GPU the fastest way that agrees with the plain one, on a CPU the native
steps where they are available.

Shape suffixes: see ``fb_fairseq/ops/__init__.py``.
"""

from collections import Counter
from functools import partial
from typing import Any, Callable, Dict, List, Sequence

import torch
from torch import Tensor

from fb_fairseq.ops import fallbacks
from fb_fairseq.ops.feedback.decoding.ring import MemoryRing
from fb_fairseq.ops.feedback.decoding.stepper import PlainStepper, StepModel, Stepper
from fb_fairseq.ops.feedback.step_loop import FALLBACK, KERNELS, LoopChoice, StepLoop
from fb_fairseq.ops.feedback.types import FeedbackOptions, FeedbackWeights, StepOutput
from fb_fairseq.ops.trials import Choices, in_fp32, ranking

TRY_AT = 8  # number of the step on which the ways are tried


class AutomaticStepper(Stepper):
    """Chooses what runs each step of a model.

    Args:
        loops: returns all loops, by name.

    Attributes:
        steppers: those of the loops that have decoding steps of their own on the devices that were met, by name.
        rankings: for each setting the ways that agree with the plain steps, the fastest first.
    """

    def __init__(self, loops: Callable[[], Dict[str, StepLoop]]):
        self._loops, self._plain = loops, PlainStepper()
        self.steppers: Dict[str, Stepper] = {}
        self._steps: Counter = Counter()  # since the last attempt
        self.rankings = Choices("decoding step", [LoopChoice(FALLBACK)], LoopChoice)

    def __reduce__(self):
        return AutomaticStepper, (self._loops,)  # a copy of a model makes its own choices

    def step(self, model, x_BD, ring, options, encoder=()) -> StepOutput:
        """See ``Stepper.step``."""
        device = x_BD.device
        if device.type not in fallbacks.GRAPH_DEVICES:
            untried = [name for name, loop in self._with_steps(device).items() if loop.taken_untried(device)]
            stepper = self._stepper(untried[0]) if untried else self._plain
            return stepper.step(model, x_BD, ring, options, encoder)
        choice = self._choice(model, x_BD, ring, options, encoder)
        options = options._replace(kernel=choice.kernel)
        return self._stepper(choice.loop).step(model, x_BD, ring, options, encoder)

    def _stepper(self, name: str) -> Stepper:
        if name not in self.steppers:
            loop = self._loops().get(name)
            self.steppers[name] = self._plain if loop is None else loop.new_stepper(asked=False)
        return self.steppers[name]

    def _choice(self, model, x_BD, ring, options, encoder) -> LoopChoice:
        """What runs a step on a GPU: the plain steps until the ways have been tried."""
        plain = LoopChoice(FALLBACK, options.kernel)
        if torch.is_grad_enabled() or torch.is_autocast_enabled(x_BD.device.type):
            return plain
        if ring.buffer is None or not len(x_BD):
            return plain
        key = (options._replace(kernel=KERNELS[0]), bool(encoder), ring.buffer.dtype, x_BD.dtype)
        if key not in self.rankings:
            self._steps[key] += 1
            if self._steps[key] < TRY_AT or not model.fixed_weights():
                return plain
            self._steps[key] = 0
        ranked = self.rankings.find(key, lambda: self._try(model, x_BD, ring, options, encoder))
        return ranked[0] if ranked else plain

    def _try(self, model, x_BD, ring, options, encoder) -> List[LoopChoice]:
        """The ways that agree with the plain steps, the fastest first."""
        candidates = {
            choice: partial(
                self._stepper(choice.loop).trial, model, x_BD, ring, options._replace(kernel=choice.kernel), encoder
            )
            for choice in self._ways(x_BD.device)
        }
        exact = None
        if x_BD.dtype.itemsize < torch.float32.itemsize:
            exact = partial(trial_in_fp32, model, x_BD, ring, options, encoder)
        return ranking("step loop auto, decoding, per step", candidates, x_BD.device, x_BD.dtype, exact)

    def _ways(self, device: torch.device) -> List[LoopChoice]:
        """What is tried on a device, the plain steps first."""
        kernels = KERNELS if fallbacks.have_kernels(device) else KERNELS[:1]
        tried = [loop for loop in self._with_steps(device).values() if not loop.taken_untried(device)]
        return [
            LoopChoice(FALLBACK),
            *(LoopChoice(loop.name, k) for loop in tried for k in kernels if k in loop.kernels),
        ]

    def _with_steps(self, device: torch.device) -> Dict[str, StepLoop]:
        """The loops that have decoding steps of their own on a device."""
        return {name: loop for name, loop in self._loops().items() if device.type in loop.steps_on}


class StepsInFp32:
    """A model whose plain steps are computed in fp32, whatever the type of its weights."""

    def __init__(self, model: StepModel):
        self._model = model

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def step_weights(self, *arguments) -> FeedbackWeights:
        """See ``StepModel``."""
        return in_fp32(self._model.step_weights(*arguments))

    def plain_step(self, *arguments) -> StepOutput:
        """See ``StepModel``."""
        return type(self._model).plain_step(self, *arguments)


def trial_in_fp32(model: StepModel, x_BD: Tensor, ring: MemoryRing, options: FeedbackOptions, encoder: Sequence):
    """What computes a step in fp32 with torch's products; see ``Stepper.trial``."""
    own, wide = ring.empty_copy(len(x_BD)), StepsInFp32(model)
    own.replace_buffer(own.buffer.float())

    def run() -> List[List[Any]]:
        own.copy_rows(ring)
        result = wide.plain_step(x_BD.float(), own, options._replace(kernel=KERNELS[0]), in_fp32(list(encoder)))
        return [[result.out_BD, result.memory_KBD, own.buffer]]

    return run
