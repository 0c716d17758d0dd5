"""The step loop that runs in C++, on a CPU. Importing this compiles nothing, and reads no sources."""

import torch

from fb_fairseq.ops.feedback.cpp.library import load
from fb_fairseq.ops.feedback.loop import Loop


class CppLoop(Loop):
    """The steps of blocks and of decoding in C++."""

    name = "cpp"
    summary = "C++, compiled at first use"
    runs = "on a CPU in fp32; elsewhere the reference runs"
    devices = ("cpu",)
    own_threads = True

    def unsupported(self, inputs) -> str | None:
        if not inputs.dtype == inputs.x_TBD.dtype == torch.float32 == inputs.weights.layers[0].query.weight.dtype:
            return f"the C++ loop computes in fp32, not in {inputs.dtype}".replace("torch.", "")
        return None

    def forward_steps(self, block, record, first, last, again=False) -> None:
        from fb_fairseq.ops.feedback.cpp.blocks import BlockCalls

        if block.own is None:
            block.own = BlockCalls(block, record, load().library)
        block.own.forward(block, record, first, last, again)

    def backward_tile(self, block, tile, d_out_TBD, d_x_TBD) -> None:
        block.own.backward(block, tile, d_out_TBD, d_x_TBD)

    def covers_step(self, stack, inputs) -> bool:
        from fb_fairseq.ops.feedback.cpp.steps import covers

        return covers(stack, inputs)

    def decode(self, stack, kept, inputs):
        from fb_fairseq.ops.feedback.cpp.steps import packed_step

        step = packed_step(kept, stack, inputs)
        return stack.reference_step(inputs) if step is None else step.run(inputs)

    def unavailable(self, device: torch.device) -> str | None:
        if device.type not in self.devices:
            return super().unavailable(device)
        problem = load().problem
        return None if problem is None else f"the C++ loop is not available: {problem}"

    def details(self) -> str:
        library = load().library
        return f"{library.compiler}, vectors of {library.VL} floats"
