"""The step loop that runs in C++, on a CPU."""

from typing import Optional

import torch

from fb_fairseq.ops.feedback.cpp.blocks import CppRun
from fb_fairseq.ops.feedback.cpp.build import BuildError
from fb_fairseq.ops.feedback.cpp.library import load, open_library
from fb_fairseq.ops.feedback.cpp.stepper import CppStepper
from fb_fairseq.ops.feedback.decoding.stepper import Stepper
from fb_fairseq.ops.feedback.torch.block import BlockInputs
from fb_fairseq.ops.feedback.torch.loop import BlockLoop, BlockRun


class CppLoop(BlockLoop):
    """The torch loop, and decoding steps, in C++."""

    name = "cpp"
    summary = "torch in C++, compiled at first use"
    runs = "on a CPU in fp32; elsewhere torch runs"
    devices = steps_on = preferred_on = ("cpu",)

    def why_not(self, inputs: BlockInputs) -> Optional[str]:
        """See ``BlockLoop.why_not``."""
        if inputs.x_TBD.device.type != "cpu":
            return f"the C++ loop runs on a CPU, not on {inputs.x_TBD.device.type}"
        if not inputs.dtype == inputs.x_TBD.dtype == torch.float32 == inputs.weights.layers[0].query.weight.dtype:
            return f"the C++ loop computes in fp32, not in {inputs.dtype}".replace("torch.", "")
        return None

    def new_run(self, inputs: BlockInputs, keep: bool) -> Optional[BlockRun]:
        """See ``BlockLoop.new_run``; None, which is logged, where the library cannot be built."""
        library = load()
        return None if library is None else CppRun(keep, library)

    def new_stepper(self, asked: bool = True) -> Stepper:
        """See ``StepLoop.new_stepper``."""
        return CppStepper()

    def problem(self, device: torch.device) -> Optional[str]:
        """See ``StepLoop.problem``."""
        if device.type != "cpu":
            return super().problem(device)
        try:
            open_library()
        except (BuildError, OSError) as error:
            return f"the C++ loop is not available: {error}"
        return None

    def details(self) -> str:
        """See ``StepLoop.details``."""
        library = open_library()
        return f"{library.compiler}, vectors of {library.VL} floats"
