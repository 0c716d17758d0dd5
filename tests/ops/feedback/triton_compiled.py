"""Compile the Triton loop's kernels for GPUs that are not here, as real blocks launch them; see ``test_triton.py``.

    python triton_compiled.py CAPABILITY TYPES SIZES…

Blocks run on the CPU with each launch recorded instead of carried out, so that every kernel is compiled with the types,
options and tiles of a training block.
"""

import itertools
import os
import pathlib
import re
import subprocess
import sys
import tempfile

import torch
import triton

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3]))

from triton.backends.compiler import GPUTarget  # noqa: E402
from triton.compiler import ASTSource  # noqa: E402
from triton.runtime.jit import JITFunction  # noqa: E402

from fb_fairseq.modules import FeedbackTransformer, TransformerOptions  # noqa: E402
from fb_fairseq.ops.feedback.autograd import run_block_with  # noqa: E402
from fb_fairseq.ops.feedback.loops import LOOPS  # noqa: E402
from fb_fairseq.ops.feedback.passes import passes_of  # noqa: E402
from fb_fairseq.ops.feedback.triton import launches  # noqa: E402
from fb_fairseq.ops.feedback.triton.tiles import Gpu
from fb_fairseq.ops.feedback.types import BlockInputs

TYPES = {
    torch.float32: "*fp32",
    torch.float16: "*fp16",
    torch.bfloat16: "*bf16",
    torch.int32: "*i32",
    torch.int64: "*i64",
    torch.uint8: "*u8",
    torch.bool: "*u8",
}
# Types of the parameters, and of autocast.
PRECISIONS = {
    "fp32": (torch.float32, None),
    "fp16": (torch.float16, None),
    "bf16": (torch.bfloat16, None),
    "amp": (torch.float32, torch.bfloat16),
}
# Layers, width, heads, feed-forward width, span, streams, and further options.
SIZES = {
    "char-ptb": [(1, 384, 4, 1536, 512, 64, {})],
    "many-streams": [(1, 384, 4, 1536, 512, 512, {})],
    "random-walk": [(1, 256, 4, 1024, 100, 512, {})],
    "wide": [(1, 1024, 8, 4096, 512, 32, {})],
    "small": [(2, 40, 2, 56, 9, 3, dict(relative_positions="key-value", adaptive_span=True, attention_dropout=0.1))],
    "odd": [
        (2, 48, 3, 64, 9, 5, dict(memory_projections="per-layer", activation_fn="gelu", dropout=0.1)),
        (2, 48, 3, 64, 9, 5, dict(memory_composition="same-and-lower", decoder_normalize_before=False)),
    ],
}
FEW_SPILLS = 64  # instructions, outside of loops: keeping whole rows is faster even so
recorded = {}  # launches of all blocks, each kind once: see ``record``


def output_of(tool: str, *arguments: str) -> str:
    """What a tool that Triton brings prints."""
    command = [os.path.join(os.path.dirname(triton.__file__), "backends/nvidia/bin", tool), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def spills(cubin: bytes) -> int:
    """The number of loads and stores of registers that did not fit.

    Disassembling takes a hundred times as long as asking for the size of the stack, without which there are none.
    """
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        if re.search(r"\bSTACK:0 .*\bLOCAL:0 ", output_of("cuobjdump", "-res-usage", file.name)):
            return 0
        return len(re.findall(r"\b(?:LDL|STL)\b", output_of("nvdisasm", file.name)))


def record(self, *arguments, grid=None, warmup=None, **options):
    """In place of ``JITFunction.run``: write the launch to ``recorded``, by kernel, types and constants, and compute
    nothing."""
    given = dict(zip(self.arg_names, arguments))
    given.update({name: value for name, value in options.items() if name in self.arg_names})
    options = {name: value for name, value in options.items() if name not in self.arg_names}
    signature, constants, divisible = {}, {}, {}
    for i, parameter in enumerate(self.params):
        value = given[parameter.name]
        if parameter.is_constexpr or value is None:
            signature[parameter.name], constants[(i,)] = "constexpr", value
        elif torch.is_tensor(value):
            signature[parameter.name] = TYPES[value.dtype]
        else:
            signature[parameter.name] = "fp32" if isinstance(value, float) else "i32"
        if not (parameter.is_constexpr or value is None or parameter.do_not_specialize or isinstance(value, float)):
            if (value.data_ptr() if torch.is_tensor(value) else value) % 16 == 0:
                divisible[(i,)] = [["tt.divisibility", 16]]
    key = (self.fn.__name__, *signature.items(), *((at, str(value)) for at, value in constants.items()))
    recorded.setdefault(key, (self, signature, constants, divisible, options))


def run_block(sizes, dtype, half):
    """Run a block forward and backward, with the memory full.

    Args:
        sizes: a row of ``SIZES``.
        dtype: of the parameters.
        half: of autocast; None: without it.
    """
    layers, width, heads, ffn, span, streams, options = sizes
    settings = TransformerOptions(
        decoder_layers=layers,
        decoder_embed_dim=width,
        decoder_ffn_embed_dim=ffn,
        decoder_attention_heads=heads,
        attention_span=span,
        **{"decoder_normalize_before": True, **options},
    )
    model = FeedbackTransformer(settings).to(dtype)
    x = torch.zeros(2, streams, width, dtype=dtype, requires_grad=True)
    memory = torch.zeros(model.memory.memories, span, streams, width, dtype=dtype)
    with torch.autocast("cpu", half, enabled=half is not None):
        inputs = BlockInputs(
            x_TBD=x,
            memory_KCBD=memory,
            weights=model.loop_weights(x.device, model.reaches()),
            options=model.loop_options(span),
            dropouts=model.draw_dropouts(x, span),
        )
        y = run_block_with(lambda given, needs_backward: passes_of(LOOPS["triton"], needs_backward), inputs).out_TBD
    y.sum().backward()


def main(capability, precisions, *names):
    """Compile the kernels of blocks, and exit with 1 if some are not as they should be.

    Args:
        capability: of the GPU, as ``90``.
        precisions: names in ``PRECISIONS``, with commas between them.
        names: of the blocks, in ``SIZES``.
    """
    capability = int(capability)
    gpu = Gpu(divmod(capability, 10))
    launches.gpu_of = lambda device: gpu
    JITFunction.run = record
    for name, precision in itertools.product(names, precisions.split(",")):
        for sizes in SIZES[name]:
            run_block(sizes, *PRECISIONS[precision])
    bad = []
    for key, (kernel, signature, constants, divisible, options) in recorded.items():
        source = ASTSource(fn=kernel, signature=signature, constexprs=constants, attrs=divisible)
        compiled = triton.compile(source, target=GPUTarget("cuda", capability, 32), options=options)
        found, shared = spills(compiled.asm["cubin"]), compiled.metadata.shared
        if found > FEW_SPILLS or shared > gpu.shared_memory:
            bad.append(f"{key[0]}: {found} spills, {shared} bytes of shared memory, {key[1:]}")
        if "ieee" in constants.values() and "tf32" in compiled.asm["ttir"]:
            bad.append(f"{key[0]}: TF32 in products that have to be exact, {key[1:]}")
    print("\n".join(bad) or f"{len(recorded)} kernels compiled")
    sys.exit(bool(bad))


if __name__ == "__main__":
    main(*sys.argv[1:])
