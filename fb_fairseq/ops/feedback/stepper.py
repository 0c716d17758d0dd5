"""The decoding steps of a model, by whichever loop covers them."""

from typing import Any

from fb_fairseq.ops.feedback.cuda_graphs.stepper import StepGraphs
from fb_fairseq.ops.feedback.loops import loop_on
from fb_fairseq.ops.feedback.step_inputs import StepInputs
from fb_fairseq.ops.feedback.types import StepOutput


class Stepper:
    """Runs the decoding steps of one model. A deep copy of a model has a new one.

    Args:
        name: a value of ``--step-loop``.

    Attributes:
        kept: by the name of a loop, what it keeps of the model.
        graphs: the captured steps.
    """

    def __init__(self, name: str):
        self.name = name
        self.kept: dict[str, dict[str, Any]] = {}
        self.graphs = StepGraphs()

    def __reduce__(self):
        return type(self), (self.name,)

    def run(self, stack: Any, inputs: StepInputs) -> StepOutput:
        """Run a step; see ``Loop.decode``.

        Raises:
            ValueError: the memory has the ages of another number of streams. (Loops would read beyond them.)
        """
        age_B = inputs.ring.age_B
        if age_B is not None and len(age_B) != len(inputs.x_BD):
            raise ValueError(f"a step of {len(inputs.x_BD)} rows; the memory has the ages of {len(age_B)} streams")
        loop = loop_on(self.name, inputs.x_BD.device)
        kept, output = self.kept.setdefault(loop.name, {}), None
        if loop.as_graphs:
            output = self.graphs.run(loop, kept, stack, inputs)
        elif loop.covers_step(stack, inputs):
            output = loop.decode(stack, kept, inputs)
        return stack.reference_step(inputs) if output is None else output
