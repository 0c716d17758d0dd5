"""The Triton kernels, without a GPU: their tests in Triton's interpreter, and compilation for a GPU.

The interpreter has to be switched on before Triton is imported, so the tests run in a process of their own.
"""

import importlib.util
import os
import pathlib
import subprocess
import sys

import pytest

pytestmark = pytest.mark.not_fast
TESTS = pathlib.Path(__file__).with_name("triton_interpreted.py")


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed")
def test_in_the_interpreter():
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", str(TESTS)]
    run = subprocess.run(command, env={**os.environ, "TRITON_INTERPRET": "1"}, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout[-3000:] + run.stderr[-2000:]
    assert " passed" in run.stdout and "skipped" not in run.stdout, run.stdout[-300:]


COMPILE = """
import re
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from fb_fairseq.ops import triton_attention
from tests.ops.machine_code import spills

OPTIONAL = ("key_positions", "value_positions", "log_mask", "padding", "reach", "keep", "seen")
KERNELS = (triton_attention.forward_kernel, triton_attention.backward_kernel)

def compiled(kernel, half, left_out, E, capability):
    types = dict.fromkeys(("q", "k", "v", "key_positions", "value_positions", "out", "d_out", "d_score", "d_q"), half)
    types.update(dict.fromkeys(("log_mask", "scores", "p"), "*fp32"), **dict.fromkeys(("padding", "keep"), "*u8"))
    types.update(dict.fromkeys(("reach", "seen"), "*i64"))
    known = dict(scale=0.125, keep_scale=1.25, H=8, E=E, **triton_attention.blocks(E), **dict.fromkeys(left_out))
    known = {name: value for name, value in known.items() if name in kernel.arg_names}
    signature = {name: "constexpr" if name in known else types.get(name, "i32") for name in kernel.arg_names}
    constants = {(kernel.arg_names.index(name),): value for name, value in known.items()}
    source = ASTSource(fn=kernel, signature=signature, constexprs=constants)
    return triton.compile(source, target=GPUTarget("cuda", capability, 32)).asm

"""

AN_H100 = """
for half, left_out in (("*fp32", ()), ("*bf16", OPTIONAL)):
    for kernel in KERNELS:
        asm = compiled(kernel, half, left_out, 64, 90)
        assert asm["cubin"]
        program = re.search(r"(%\\S+) = tt.get_program_id", asm["ttir"])[1]
        assert f"arith.extsi {program} : i32 to i64" in asm["ttir"], "offsets may exceed 2^31"
for kernel in KERNELS:
    names = {parameter.name for parameter in kernel.params if parameter.do_not_specialize}
    assert names >= {"C", "S", "P", "p"} and names & {"keep"}, "these change from step to step"
"""

EVERY_TARGET = """
for capability in (75, 80, 90):
    for half in ("*fp32", "*fp16", "*bf16"):
        for kernel in KERNELS:
            assert compiled(kernel, half, (), 64, capability)["cubin"]
LEFT_OUT = ("value_positions", "log_mask", "padding", "reach", "seen")
for E in (24, 64, 128, 256):
    for half in ("*fp32", "*fp16", "*bf16"):
        for kernel in KERNELS:
            found = spills(compiled(kernel, half, LEFT_OUT, E, 90)["cubin"])
            assert found == 0, f"{kernel.__name__}, E={E}, {half}: {found} spills"
"""


def compile_kernels(program, folder):
    triton = pytest.importorskip("triton")
    if tuple(map(int, triton.__version__.split(".")[:2])) < (3, 3):
        pytest.skip("this version of Triton has another compiler interface")
    environment = {**os.environ, "TRITON_CACHE_DIR": str(folder)}
    run = subprocess.run([sys.executable, "-c", COMPILE + program], env=environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr[-3000:]


def test_compiles_for_an_h100(tmp_path):
    """To machine code, which needs no GPU. Offsets are 64-bit, and a change of alignment compiles nothing again."""
    compile_kernels(AN_H100, tmp_path)


@pytest.mark.slow
def test_compiles_for_every_target(tmp_path):
    """In all types, and without spills for heads of up to 256."""
    compile_kernels(EVERY_TARGET, tmp_path)
