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
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from fb_fairseq.ops import triton_attention

OPTIONAL = ("key_positions", "value_positions", "log_mask", "padding", "reach", "keep", "seen")
for half in ("*fp32", "*bf16"):
    types = dict.fromkeys(("q", "k", "v", "key_positions", "value_positions", "out", "d_out", "d_score", "d_q"), half)
    types.update(dict.fromkeys(("log_mask", "scores", "p"), "*fp32"), **dict.fromkeys(("padding", "keep"), "*u8"))
    types.update(dict.fromkeys(("reach", "seen"), "*i64"))
    for left_out in ((), OPTIONAL):
        for kernel in (triton_attention.forward_kernel, triton_attention.backward_kernel):
            known = dict(scale=0.125, keep_scale=1.25, H=8, E=64, BLOCK_C=64, BLOCK_E=64, **dict.fromkeys(left_out))
            known = {name: value for name, value in known.items() if name in kernel.arg_names}
            signature = {name: "constexpr" if name in known else types.get(name, "i32") for name in kernel.arg_names}
            constants = {(kernel.arg_names.index(name),): value for name, value in known.items()}
            source = ASTSource(fn=kernel, signature=signature, constexprs=constants)
            assert triton.compile(source, target=GPUTarget("cuda", 90, 32)).asm["cubin"]
"""


def test_compiles_for_a_gpu(tmp_path):
    """The kernels compile to machine code for an H100, which needs no GPU."""
    triton = pytest.importorskip("triton")
    if tuple(map(int, triton.__version__.split(".")[:2])) < (3, 3):
        pytest.skip("this version of Triton has another compiler interface")
    environment = {**os.environ, "TRITON_CACHE_DIR": str(tmp_path)}
    run = subprocess.run([sys.executable, "-c", COMPILE], env=environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr[-3000:]
