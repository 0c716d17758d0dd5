"""The Triton loop without a GPU: its kernels interpreted and compiled, its tiles, and what it does not cover."""

import importlib.util
import itertools
import pathlib
import subprocess
import sys
from functools import partial

import pytest
import torch

from fb_fairseq.ops import capturing
from fb_fairseq.ops.feedback.autograd import run_block_with
from fb_fairseq.ops.feedback.loops import LOOPS
from fb_fairseq.ops.feedback.passes import passes_of
from fb_fairseq.ops.feedback.step_inputs import StepInputs
from fb_fairseq.ops.feedback.triton.tiles import (
    AttentionTile,
    Gpu,
    ProductTile,
    attention_tile,
    power_of_2,
    product_tile,
)
from tests.ops.feedback.cases import Case
from tests.ops.own_process import run_tests

needs_triton = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed")
INTERPRETED = pathlib.Path(__file__).with_name("triton_interpreted.py")
COMPILED = pathlib.Path(__file__).with_name("triton_compiled.py")


@needs_triton
@pytest.mark.not_fast
def test_in_the_interpreter(pytestconfig):
    """In a process of its own: the interpreter has to be switched on before Triton is imported."""
    all_cases = "1" if pytestconfig.getoption("--slow") else ""
    assert "skipped" not in run_tests(INTERPRETED, TRITON_INTERPRET="1", ALL_CASES=all_cases)


def compile_kernels(*arguments):
    run = subprocess.run([sys.executable, str(COMPILED), *arguments], capture_output=True, text=True)
    assert run.returncode == 0, run.stdout[-3000:] + run.stderr[-2000:]
    assert "kernels compiled" in run.stdout


@needs_triton
@pytest.mark.on_ci
@pytest.mark.parametrize("precisions,sizes", [("bf16,amp", "char-ptb"), ("fp32", "small")])
def test_compiles_for_a_gpu(precisions, sizes):
    """Without spills; products of fp32 without TF32, unless torch is told to."""
    compile_kernels("90", precisions, sizes)


@needs_triton
@pytest.mark.slow
@pytest.mark.parametrize("capability", ["75", "80", "86", "89", "90", "100"])
def test_compiles_for_every_gpu(capability):
    """In all types, and within each generation's shared memory."""
    precisions = "fp32,fp16" if capability == "75" else "fp32,fp16,bf16,amp"
    compile_kernels(capability, precisions, "char-ptb", "many-streams", "random-walk", "wide", "small", "odd")


def test_what_is_not_covered(monkeypatch):
    monkeypatch.setattr(capturing, "KERNEL_DEVICES", ("cpu",))
    case, found = Case(1, steps=2, dtype=torch.float32), []
    wide = Case(1, steps=2, decoder_embed_dim=288, decoder_attention_heads=2, decoder_head_dim=144)

    def passes_for(inputs, needs_backward):
        found.append(LOOPS["triton"].unsupported(inputs))
        return passes_of(LOOPS["reference"], needs_backward)

    for each in (case, wide):
        each.forward(partial(run_block_with, passes_for))
    monkeypatch.setattr(capturing, "KERNEL_DEVICES", ())
    case.forward(partial(run_block_with, passes_for))
    problem = "its kernels are for heads of width 128 or less in this type, not 144"
    assert found == [None, problem, "its kernels need a GPU, not cpu"]


@torch.no_grad()
@pytest.mark.parametrize("E,covered", [(8, True), (144, False)])
def test_decoding_steps_that_are_not_covered(monkeypatch, E, covered):
    monkeypatch.setattr(capturing, "KERNEL_DEVICES", ("cpu",))
    case = Case(1, steps=1, dtype=torch.float32, decoder_head_dim=E)
    ring = case.model.new_ring()
    case.model.run_step(case.x[0], ring)
    assert LOOPS["triton"].covers_step(case.model, StepInputs(case.x[0], ring, None)) == covered


CAPABILITIES = [(7, 5), (8, 0), (8, 6), (8, 9), (9, 0), (10, 0), (12, 0)]


def test_tables():
    """What was fastest where it was measured, and what smaller GPUs get."""
    whole = dict(norm=True, rich=True)
    small = Gpu((7, 5), 40)
    assert product_tile(64, 384, 1536, 2, Gpu()) == ProductTile(BM=16, BN=16, BK=256, num_warps=4, num_stages=3)
    assert product_tile(64, 1536, 384, 2, Gpu(), norm=True) == ProductTile(
        BM=16, BN=64, BK=128, num_warps=8, num_stages=3
    )
    assert product_tile(64, 768, 384, 2, Gpu(), **whole) == ProductTile(BM=16, BN=32, BK=512, num_warps=8, num_stages=1)
    assert product_tile(512, 1536, 384, 2, Gpu(), **whole) == ProductTile(
        BM=16, BN=128, BK=64, num_warps=8, num_stages=3
    )
    assert product_tile(64, 1536, 384, 2, small) == ProductTile(BM=16, BN=64, BK=32, num_warps=8, num_stages=1)
    assert attention_tile(4, 512, 96, 2, Gpu()) == AttentionTile(BC=32, splits=8, warps=2, stages=3)
    assert attention_tile(4, 100, 96, 2, Gpu()).splits == 2, "a part has two tiles of slots"
    assert attention_tile(256, 512, 96, 2, small) == AttentionTile(BC=16, splits=1, warps=8, stages=1)


@pytest.mark.parametrize("capability", CAPABILITIES)
def test_shared_memory(capability):
    """Half of it, so that two programs fit; of whole rows three quarters, where there are few programs. Where one piece
    takes more, there is one piece at a time."""
    gpu = Gpu(capability)
    kinds = [{}, {"norm": True}, {"norm": True, "rich": True}]
    for rows, columns, inner, itemsize, kind in itertools.product((1, 64, 300), (16, 4096), (16, 4096), (2, 4), kinds):
        tile = product_tile(rows, columns, inner, itemsize, gpu, **kind)
        few = -(-rows // tile.BM) * -(-columns // tile.BN) <= gpu.processors and tile.BK >= inner
        share = 3 / 4 if few else 1 / 2
        assert (tile.BM + tile.BN) * tile.BK * itemsize * tile.num_stages <= gpu.shared_memory * share
    for E, itemsize in ((16, 2), (128, 2), (128, 4), (256, 2)):
        tile = attention_tile(8, 512, E, itemsize, gpu)
        assert 3 * tile.BC * power_of_2(E) * itemsize * tile.stages <= gpu.shared_memory // 2 or tile.BC == 16


def test_rows_of_a_tile():
    """More, where there are more rows, but where registers hold rows of several tensors."""
    rows = (128, 129, 256, 257)
    assert [product_tile(number, 4096, 4096, 2, Gpu()).BM for number in rows] == [16, 32, 32, 64]
    assert {product_tile(number, 4096, 4096, 2, Gpu(), norm=True, rich=True).BM for number in rows} == {16}


def test_enough_programs():
    for rows, columns in itertools.product((1, 64, 128, 512), (384, 1024, 4096)):
        tile = product_tile(rows, columns, columns, 2, Gpu())
        programs = -(-rows // tile.BM) * -(-columns // tile.BN)
        assert programs >= 96 or tile.BN == (32 if tile.BM == 64 else 16)
