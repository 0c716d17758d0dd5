"""Blocks, decoding steps and whole models on a fake GPU (``test_fake_gpu.py`` runs this file in a process of its own).

Gradients have their parameters' types, devices and shapes; nothing inside a block or a step waits for the device, mixes
devices, or draws random numbers.
"""

import argparse
import contextlib

import pytest
import torch

from fb_fairseq.modules import AllAttention, FeedbackTransformer, RelativeTransformer, stack
from fb_fairseq.ops import cuda_graphs
from fb_fairseq.ops.feedback.cuda_graphs import blocks, steps
from fb_fairseq.ops.feedback.cuda_graphs.blocks import BlockGraphs
from fb_fairseq.ops.feedback.cuda_graphs.stepper import StepGraphs
from fb_fairseq.ops.feedback.loops import GRAPHS
from tests.modules.options import random_options
from tests.ops.fake_gpu_device import Capture, Watch, fake_gpu

B = 3
STACKS = {"feedback": FeedbackTransformer, "relative": RelativeTransformer, "all-attention": AllAttention}
MODES = {  # type of the parameters, and of autocast
    "fp32": (torch.float32, None),
    "half": (torch.float16, None),
    "bf16": (torch.bfloat16, None),
    "amp": (torch.float32, torch.float16),
    "amp-bf16": (torch.float32, torch.bfloat16),
}


@pytest.fixture(autouse=True)
def gpu(monkeypatch):
    monkeypatch.setattr(blocks, "CudaGraph", Capture)
    monkeypatch.setattr(steps, "CudaGraph", Capture)
    monkeypatch.setattr(BlockGraphs, "capture_at", 2)
    monkeypatch.setattr(StepGraphs, "capture_at", 2)
    monkeypatch.setattr(cuda_graphs, "_capturing_failed", False)
    # Spans are read once per block, before it starts: a wait that is known.
    monkeypatch.setattr(stack, "reaches", lambda spans: [max(1, min(s.span, 1 + 3 * i)) for i, s in enumerate(spans)])
    GRAPHS.clear()
    GRAPHS.problems.clear()
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device=None: (9, 0))
    with fake_gpu():
        yield


def autocast(mode):
    dtype = MODES[mode][1]
    return torch.autocast("cuda", dtype=dtype or torch.float16, enabled=dtype is not None)


@contextlib.contextmanager
def default_dtype(mode):
    """New parameters have the mode's type. (Fake ones cannot be converted.)"""
    torch.set_default_dtype(MODES[mode][0])
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


def build(kind, seed, mode, **changes):
    values = dict(
        attention_dropout=0.2 * (seed % 3 == 0),
        activation_dropout=0.3 * (seed % 4 == 0),
        dropout=0.1 * (seed % 5 == 0),
        output_dropout=0.1 * (seed % 2),
        attention_span=[2, 6][seed % 2],
        **changes,
    )
    if kind == "all-attention":
        variants = ["all-attn", "attn-split", "single-head", "ff-attn"]
        values.update(persistent_memory_size=5, persistent_memory_variant=variants[seed % 4])
    with torch.device("cuda"), default_dtype(mode):
        return STACKS[kind](random_options(seed, **values))


def check_gradients(model):
    for name, parameter in model.named_parameters():
        gradient = parameter.grad
        if gradient is not None:
            found = (gradient.dtype, gradient.device, gradient.shape)
            assert found == (parameter.dtype, parameter.device, parameter.shape), name


CASES = [("feedback", "triton", mode, seed) for seed, mode in enumerate(MODES)]
CASES += [("relative", "triton", "amp", 1), ("all-attention", "triton", "half", 0)]


@pytest.mark.parametrize("kind,loop,mode,seed", CASES)
def test_blocks_and_steps(kind, loop, mode, seed):
    """Blocks with carried memory, episodes, dropout, recomputation; then steps, captured too."""
    model = build(kind, seed, mode, step_loop=loop, step_loop_recompute=seed % 2 == 1)
    state, dtype, T, made = None, MODES[mode][0], 3, Capture.made
    age_TB = torch.ones(T, B, dtype=torch.long, device="cuda") if seed % 3 == 1 else None
    for _ in range(3):
        x_TBD = torch.empty(T, B, model.options.decoder_embed_dim, device="cuda", dtype=dtype, requires_grad=True)
        with autocast(mode), Watch() as watch:
            y, state = model.run_block(x_TBD, state, age_TB)
        assert not [problem for problem in watch.problems if "crosses" in problem]
        y.float().sum().backward()
        check_gradients(model)
        assert x_TBD.grad.dtype == dtype
    model.eval()
    with torch.no_grad():
        with autocast(mode):
            model.run_block(x_TBD.detach(), state, age_TB)
        ring = model.ring_after(state)
        for _ in range(5):
            model.run_step(x_TBD.detach()[0], ring)
    assert not cuda_graphs._capturing_failed
    if loop == "triton":
        assert Capture.made > made


def test_language_model_and_criterion():
    """Two blocks of a stream. (Adaptive input and softmax wait for the device: they select the tokens of a cluster.)"""
    pytest.importorskip("fairseq")
    from fb_fairseq.criterions import LanguageModelLoss
    from fb_fairseq.models.architectures import FeedbackTransformerLanguageModel
    from fb_fairseq.streams.state import StateHandle, StateStore
    from tests.models.decoders import dictionary
    from tests.models.language_models import build as build_lm

    sizes = dict(dropout=0.1, attention_dropout=0.1, activation_dropout=0.1)
    with torch.device("cuda"):
        model = build_lm(FeedbackTransformerLanguageModel, **sizes)
    criterion = LanguageModelLoss(argparse.Namespace(target_dictionary=dictionary(20), byte_data=False))
    store = StateStore()
    for offset in (0, 4):
        tokens = torch.full((B, 4), 5, device="cuda")
        net_input = {"src_tokens": tokens, "stream": StateHandle(store, (0,), offset)}
        with autocast("amp"):
            loss = criterion(model, {"target": tokens, "ntokens": 4 * B, "net_input": net_input})[0]
        loss.backward()
    check_gradients(model)
    assert sum(p.grad is not None for p in model.parameters()) > 20


class NoPadding:
    """False, and for fairseq-fixed's encoder a zero."""

    def __bool__(self):
        return False

    def type_as(self, x):
        return x.new_zeros(())


def test_translation_model(monkeypatch):
    """Without padding. (fairseq's checks for padding wait for the device, once per batch.)"""
    pytest.importorskip("fairseq")
    from tests.models.decoders import build as build_translation_model

    monkeypatch.setattr(torch.Tensor, "any", lambda self, *a, **k: NoPadding())
    with torch.device("cuda"), default_dtype("half"):
        model = build_translation_model(dropout=0.1, attention_dropout=0.1, encoder_learned_pos=True,
                                        decoder_learned_pos=True).train()  # fmt: skip
        tokens, lengths = torch.full((B, 5), 5), torch.full((B,), 5)
    model(tokens, lengths, tokens)[0].float().sum().backward()
    check_gradients(model)
