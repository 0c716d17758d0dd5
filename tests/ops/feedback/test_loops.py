"""The table of step loops: a loop that is entered there trains, decodes, and is checked and shown like the others."""

from argparse import Namespace
from collections import Counter
from functools import partial

import pytest
import torch

from fb_fairseq.errors import UserError
from fb_fairseq.modules import FeedbackTransformer
from fb_fairseq.ops import capturing
from fb_fairseq.ops.feedback.loop import Loop
from fb_fairseq.ops.feedback.loops import CHOICES, LOOPS, log_choice, loop_on, run_block
from fb_fairseq.ops.feedback.passes import ReferencePasses
from fb_fairseq.ops.feedback.reference import feedback_block
from fb_fairseq.papers.benchmark import comparisons
from tests.modules.options import random_options
from tests.ops.feedback.cases import Case, compare


class OwnPasses(ReferencePasses):
    def forward(self, inputs):
        self.loop.calls["forward"] += 1
        return super().forward(inputs)

    def backward(self, d_out_TBD):
        self.loop.calls["backward"] += 1
        return super().backward(d_out_TBD)


class OwnLoop(Loop):
    """The shortest loop: torch's operations, no encoder; docs/development.md shows one with steps of its own."""

    name, summary, runs = "own", "a loop of one's own", "on a CPU, without an encoder"
    devices = ("cpu",)
    passes_class = OwnPasses

    def __init__(self):
        self.calls = Counter()

    def unsupported(self, inputs):
        return "it knows no encoder" if inputs.encoder else None

    def covers_step(self, stack, inputs):
        return True

    def decode(self, stack, kept, inputs):
        kept["steps"] = kept.get("steps", 0) + 1
        return stack.reference_step(inputs)


@pytest.fixture
def own(monkeypatch):
    loop = OwnLoop()
    monkeypatch.setitem(LOOPS, "own", loop)
    monkeypatch.setitem(CHOICES, "own", (loop.summary, loop.runs))
    log_choice.cache_clear()
    yield loop
    log_choice.cache_clear()


def build(name):
    """A stack of always the same options and parameters, with this --step-loop."""
    torch.manual_seed(1)
    return FeedbackTransformer(random_options(1, step_loop=name, attention_span=5, adaptive_span=False)).double()


def test_training_and_decoding(own, caplog):
    caplog.set_level("INFO")
    model = build("own")
    plain = build("reference")
    x_TBD = torch.randn(4, 3, model.options.decoder_embed_dim, dtype=torch.double)
    for m in (model, plain):
        torch.manual_seed(2)
        m(x_TBD)[0].sum().backward()
    for (name, ours), theirs in zip(model.named_parameters(), plain.parameters()):
        torch.testing.assert_close(
            ours.grad, theirs.grad, atol=1e-10, rtol=1e-10, msg=lambda text, n=name: f"{n}: {text}"
        )
    assert own.calls == {"forward": 1, "backward": 1}
    assert "step loop: own (asked for by --step-loop)" in caplog.text
    with torch.no_grad():
        ring = model.eval().new_ring()
        expected = model(x_TBD)[0]
        ours = torch.stack([model.run_step(x_BD, ring) for x_BD in x_TBD])
    torch.testing.assert_close(ours, expected)
    assert model.stepper.kept["own"]["steps"] == ring.position == 4


def test_what_a_loop_does_not_cover(own, caplog):
    """The reference runs it, which is logged once."""
    capturing.log_once.cache_clear()
    case = Case(3, cross=True)
    for _ in range(2):
        compare(case.run(partial(run_block, "own")), case.run(feedback_block), 1e-10)
    assert not own.calls and caplog.text.count("--step-loop own: it knows no encoder; the reference runs") == 1


# In checkpoints and exported configurations.
NAMES_OF_EARLIER_VERSIONS = {
    "torch": "reference",
    "fast": "reference",
    "native": "cpp",
    "fused": "triton",
    "graph": "triton",
    "parallel": "auto",
}


@pytest.mark.parametrize("old,name", NAMES_OF_EARLIER_VERSIONS.items())
def test_names_of_earlier_versions(monkeypatch, old, name):
    assert build(old).stepper.name == build(old).options.step_loop == name
    monkeypatch.setenv("FB_FAIRSEQ_STEP_LOOP", old)
    assert build("auto").stepper.name == name


def test_the_environment_variable(own, monkeypatch):
    """It takes the place of auto, not of a loop that was asked for."""
    for value, expected in (("", "auto"), ("own", "own")):
        monkeypatch.setenv("FB_FAIRSEQ_STEP_LOOP", value)
        assert build("auto").stepper.name == expected and build("reference").stepper.name == "reference"
    monkeypatch.setenv("FB_FAIRSEQ_STEP_LOOP", "faster")
    with pytest.raises(UserError, match="FB_FAIRSEQ_STEP_LOOP=faster: unknown; give auto, reference, cpp, triton"):
        build("auto")


def test_the_benchmark_measures_it(own):
    cases = comparisons.loops(Namespace(device="cpu", dtype="fp32"))
    assert list(cases)[0] == "reference" and cases["own"].options == {"step_loop": "own"}
    assert "own" not in comparisons.loops(Namespace(device="cuda:0", dtype="fp32"))


def test_what_auto_takes(monkeypatch, caplog):
    """A rule: nothing is timed. (Where the preferred loop does not run, no line of the log says so.)"""
    capturing.log_once.cache_clear()
    cpp = LOOPS["cpp"]
    cpu = torch.device("cpu")
    monkeypatch.setattr(type(cpp), "unavailable", lambda self, device: None)
    assert loop_on("auto", cpu) is cpp
    assert all(loop_on(name, torch.device("meta")) is LOOPS["reference"] for name in ("auto", "reference"))
    monkeypatch.setattr(type(cpp), "unavailable", lambda self, device: "there is no compiler")
    assert loop_on("auto", cpu) is LOOPS["reference"] and not caplog.records
    assert loop_on("cpp", cpu) is LOOPS["reference"]
    assert "--step-loop cpp: there is no compiler; the reference runs" in caplog.text
