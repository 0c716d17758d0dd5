"""The Triton loop without a GPU: its kernels in Triton's interpreter and compiled for GPUs; what it does not cover."""

import importlib.util
import os
import pathlib
import subprocess
import sys
from functools import partial

import pytest
import torch

from fb_fairseq.ops import cuda_graphs
from fb_fairseq.ops.feedback.loops import LOOPS, run_block
from fb_fairseq.ops.feedback.reference import feedback_block
from fb_fairseq.ops.feedback.torch.passes import Passes, run_block_with
from tests.ops.feedback.cases import Case, compare

needs_triton = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed")
INTERPRETED = pathlib.Path(__file__).with_name("triton_interpreted.py")
COMPILED = pathlib.Path(__file__).with_name("triton_compiled.py")


@needs_triton
@pytest.mark.not_fast
@pytest.mark.parametrize("all_cases", ["", pytest.param("1", marks=pytest.mark.slow)])
def test_in_the_interpreter(all_cases):
    """In a process of its own: the interpreter has to be switched on before Triton is imported."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", str(INTERPRETED)]
    environment = {**os.environ, "TRITON_INTERPRET": "1", "ALL_CASES": all_cases}
    run = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout[-3000:] + run.stderr[-2000:]
    assert " passed" in run.stdout and "skipped" not in run.stdout, run.stdout[-300:]


def compile_kernels(*arguments):
    run = subprocess.run([sys.executable, str(COMPILED), *arguments], capture_output=True, text=True)
    assert run.returncode == 0, run.stdout[-3000:] + run.stderr[-2000:]
    assert "kernels compiled" in run.stdout


@needs_triton
@pytest.mark.not_fast
def test_compiles_for_a_gpu():
    compile_kernels("90", "char-ptb")


@needs_triton
@pytest.mark.slow
def test_compiles_for_every_gpu():
    """In all types, without spills, and within each generation's shared memory."""
    for capability in ("75", "80", "86", "89", "90", "100"):
        compile_kernels(capability, "char-ptb", "many-streams", "random-walk", "wide", "odd")


def test_where_there_is_no_gpu(caplog):
    """The torch loop runs, which is logged once."""
    cuda_graphs.log_once.cache_clear()
    case = Case(1, steps=3)
    for _ in range(2):
        compare(case.run(partial(run_block, "triton")), case.run(feedback_block), 1e-10)
    assert caplog.text.count("--step-loop triton: it does not run on cpu; the torch loop runs") == 1


def test_what_is_not_covered(monkeypatch):
    monkeypatch.setattr(cuda_graphs, "KERNEL_DEVICES", ("cpu",))
    case, found = Case(1, steps=2, dtype=torch.float32), []
    wide = Case(1, steps=2, decoder_embed_dim=288, decoder_attention_heads=2, decoder_head_dim=144)

    def passes_for(inputs, needs_backward):
        found.append(LOOPS["triton"].unsupported(inputs))
        return Passes(LOOPS["torch"], needs_backward)

    for each in (case, wide):
        each.forward(partial(run_block_with, passes_for))
    monkeypatch.setattr(cuda_graphs, "KERNEL_DEVICES", ())
    case.forward(partial(run_block_with, passes_for))
    problem = "its kernels are for heads of width 128 or less in this type, not 144"
    assert found == [None, problem, "its kernels need a GPU, not cpu"]
