"""``--step-loop auto``: cpp on a CPU, triton on a GPU, where they can run; torch elsewhere."""

from typing import Callable, Dict, List

import torch

from fb_fairseq.ops.feedback.decoding.stepper import PlainStepper, Stepper
from fb_fairseq.ops.feedback.step_loop import AUTO, DEVICES, FALLBACK, StepLoop
from fb_fairseq.ops.feedback.torch.block import BlockInputs
from fb_fairseq.ops.feedback.torch.loop import BlockLoop, BlockRun
from fb_fairseq.ops.feedback.types import StepOutput


class AutomaticLoop(BlockLoop):
    """Chooses what runs each block: the first loop that is preferred on its device and can run it.

    Args:
        loops: returns all loops, by name.
    """

    name = AUTO
    summary = "cpp on a CPU where it can be compiled, triton on a GPU, torch elsewhere"
    runs = "everywhere"
    reason = summary

    def __init__(self, loops: Callable[[], Dict[str, StepLoop]]):
        self._loops = loops

    def preferred(self, device: str) -> List[StepLoop]:
        """The loops that are taken on a type of device where they can run."""
        return [loop for loop in self._loops().values() if device in loop.preferred_on]

    @property
    def warm_up_blocks(self) -> int:
        """See ``StepLoop``."""
        return max((loop.warm_up_blocks for loop in self._loops().values() if loop is not self), default=0)

    def choose_run(self, inputs: BlockInputs, keep: bool) -> BlockRun:
        """See ``BlockLoop.choose_run``."""
        for loop in self.preferred(inputs.x_TBD.device.type):
            run = loop.new_run(inputs, keep) if loop.why_not(inputs) is None else None
            if run is not None:
                return run
        return BlockRun(keep)

    def new_stepper(self, asked: bool = True) -> Stepper:
        """See ``StepLoop.new_stepper``."""
        return AutomaticStepper(self)

    def details(self) -> str:
        """See ``StepLoop.details``: what it takes here."""
        texts = []
        for name in DEVICES[: 1 + torch.cuda.is_available()]:
            for loop in self.preferred(name):
                problem = loop.problem(torch.device(name))
                details = f" ({loop.details()})" if not problem and loop.details() else ""
                texts.append(f"{FALLBACK}; {problem}" if problem else f"{loop.name} on {name}{details}")
        return f"{'; '.join(texts)}; otherwise {FALLBACK}"


class AutomaticStepper(Stepper):
    """Runs each step with what the preferred loop of its device has for that."""

    def __init__(self, loop: AutomaticLoop):
        self._loop = loop
        self.steppers: Dict[str, Stepper] = {}

    def __reduce__(self):
        return AutomaticStepper, (self._loop,)  # a copy of a model has steppers of its own

    def step(self, model, x_BD, ring, options, encoder=()) -> StepOutput:
        """See ``Stepper.step``."""
        device = x_BD.device.type
        if device not in self.steppers:
            preferred = self._loop.preferred(device)
            self.steppers[device] = preferred[0].new_stepper(asked=False) if preferred else PlainStepper()
        return self.steppers[device].step(model, x_BD, ring, options, encoder)
