"""The table of step loops: a loop that is entered there trains, decodes, and is checked and shown like the others."""

import argparse

import pytest
import torch

from fb_fairseq.commands import main
from fb_fairseq.modules import FeedbackTransformer
from fb_fairseq.ops.feedback.decoding.stepper import PlainStepper
from fb_fairseq.ops.feedback.loops import LOOPS, step_loop
from fb_fairseq.ops.feedback.reference import feedback_block
from fb_fairseq.ops.feedback.step_loop import KERNELS, LoopChoice, StepLoop
from fb_fairseq.papers.benchmark import train
from tests.modules.options import random_options


class OwnStepper(PlainStepper):
    """Counts its steps."""

    def __init__(self):
        super().__init__()
        self.steps = 0

    def step(self, *arguments):
        self.steps += 1
        return super().step(*arguments)


class OwnLoop(StepLoop):
    """A loop as somebody else would add it."""

    name, summary, runs = "own", "a loop of one's own", "on a CPU"
    devices = steps_on = ("cpu",)

    def __init__(self):
        self.blocks = 0

    def run_block(self, *arguments):
        self.blocks += 1
        return feedback_block(*arguments)

    def new_stepper(self, asked=True):
        return OwnStepper()


@pytest.fixture
def own(monkeypatch):
    loop = OwnLoop()
    monkeypatch.setitem(LOOPS, "own", loop)
    step_loop.cache_clear()
    yield loop
    step_loop.cache_clear()


def build(name):
    torch.manual_seed(1)
    return FeedbackTransformer(random_options(1, step_loop=name, attention_span=5, adaptive_span=False)).double()


def test_training_and_decoding(own, caplog):
    caplog.set_level("INFO")
    model, plain = build("own"), build("reference")
    x_TBD = torch.randn(4, 3, model.options.decoder_embed_dim, dtype=torch.double)
    for m in (model, plain):
        torch.manual_seed(2)
        m(x_TBD)[0].sum().backward()
    for (name, ours), theirs in zip(model.named_parameters(), plain.parameters()):
        assert ours.grad.equal(theirs.grad), name
    assert own.blocks == 1 and "step loop: own (asked for by --step-loop)" in caplog.text
    with torch.no_grad():
        ring, expected = model.eval().new_ring(), model(x_TBD)[0]
        ours = torch.stack([model.run_step(x_BD, ring) for x_BD in x_TBD])
    torch.testing.assert_close(ours, expected)
    assert model.stepper.steps == ring.position == 4


def test_the_environment_variable(own, monkeypatch):
    monkeypatch.setenv("FB_FAIRSEQ_STEP_LOOP", "own")
    assert build("auto").choice == LoopChoice("own")


def test_the_benchmarks_check_of_gradients(own):
    args = argparse.Namespace(
        device="cpu", dtype="fp32", batch_size=2, block=3, span=4, layers=2, embed_dim=8, ffn_dim=12, heads=2
    )
    cases = train.cases_on("cpu")
    assert list(cases)[0] == "reference" and cases["own"].options == {"step_loop": "own"}
    blocks = own.blocks
    train.check_gradients(args, [case.options for case in cases.values() if case.model == "feedback"])
    assert own.blocks > blocks
    assert "own" not in train.cases_on("cuda:0")


def test_the_environment(own, capsys):
    main(["env"])
    shown = capsys.readouterr().out
    assert "reference, fast, graph (it does not run on cpu), " in shown and ", native, own\n" in shown


def test_choices_as_text():
    for loop in LOOPS.values():
        for kernel in loop.kernels:
            choice = LoopChoice(loop.name, kernel)
            assert LoopChoice.parse(str(choice)) == choice and f"{choice}" == str(choice)
    assert str(LoopChoice("graph", "triton")) == "graph+triton" and str(LoopChoice("graph", KERNELS[0])) == "graph"


def test_each_loop_tells_what_it_is():
    for name, loop in LOOPS.items():
        assert loop.name == name and loop.summary and loop.runs and loop.kernels[0] == KERNELS[0]
        assert loop.problem(torch.device("cpu")) is None or "cpu" not in loop.devices or name == "native"
