"""examples/benchmark/gpu_commands.py: what gpu.py runs."""

import pytest

from fb_fairseq.papers.benchmark.command import parse
from fb_fairseq.papers.results.record import write_record
from fb_fairseq.papers.values import load
from tests.papers.steps.printed import commands, printed, trainings


@pytest.fixture
def gpu_commands(script):
    return script("gpu_commands")


def values(measurements, option):
    """The numbers that an option has in the commands."""
    return [float(found.command[found.command.index(option) + 1]) for found in measurements]


def as_printed(measurement):
    """What the recipe of a training prints with ``--print``."""
    words = measurement.command
    return printed(*words[words.index("recipe") + 1 :])


def test_what_is_measured_on_a_gpu(gpu_commands, tmp_path, monkeypatch):
    """All sizes in both types, all precisions, two GPUs; every command's options exist."""
    monkeypatch.setattr(gpu_commands.torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(gpu_commands.torch.cuda, "is_available", lambda: True)
    found = gpu_commands.measurements(False, tmp_path)
    titles = [measurement.title for measurement in found]
    assert {"Tests", "fairseq-train, --fp16", "Two GPUs, legacy_ddp", "Two GPUs, pytorch_ddp"} <= set(titles)
    assert {f"Training, {name}, {dtype}" for name in gpu_commands.SIZES for dtype in ("fp32", "bf16")} <= set(titles)
    assert {f"fairseq-train, char-PTB size, {model}" for model in gpu_commands.FAIRSEQ_MODELS} <= set(titles)
    assert {f"Decoding, char-PTB, bf16, {streams} streams" for streams in (1, 64)} <= set(titles)
    for measurement in found:
        if "benchmark" in measurement.command:
            parsed = parse(measurement.command[measurement.command.index("benchmark") + 1 :])
            assert parsed.threads == 1, "unless more are asked for"


@pytest.mark.parametrize("name", ["A5", "S5"])
@pytest.mark.parametrize("cpu,longest", [(True, "4"), (False, "128")])
def test_word_problems(gpu_commands, tmp_path, name, cpu, longest):
    """The Feedback Transformer comes first, and gets most of the time."""
    (tmp_path / name).mkdir()
    feedback, transformer = gpu_commands.experiment(name, minutes=6, out=tmp_path, ptb=None, cpu=cpu)
    assert (feedback.title, transformer.title) == (f"{name}, feedback", f"{name}, transformer")
    assert (feedback.limit, transformer.limit) == pytest.approx((240, 120))
    assert values([feedback, transformer], "--minutes") == pytest.approx([0.8 * 4, 0.8 * 2])
    (training,) = commands(as_printed(feedback), "python -m fb_fairseq state-tracking train")
    assert training[training.index("--minutes") + 1] == "3.200"
    assert training[training.index("--group") + 1] == name
    assert training[training.index("--longest") + 1] == longest


@pytest.mark.parametrize("name,column", [("walk", "random walk"), ("char-PTB", "char-PTB")])
def test_trainings(gpu_commands, tmp_path, name, column):
    """Sizes are the papers'."""
    (tmp_path / name).mkdir()
    ptb = tmp_path if name == "char-PTB" else None
    feedback, transformer = gpu_commands.experiment(name, minutes=6, out=tmp_path, ptb=ptb, cpu=False)
    assert feedback.title.startswith(f"{name}, feedback") and "transformer" in transformer.title
    assert values([feedback, transformer], "--stop-time-hours") == pytest.approx([3.2 / 60, 1.6 / 60], rel=0.01)
    (options,) = trainings(as_printed(feedback))
    papers = load("hyperparameters")["v3 Table 9"]["columns"][column]
    assert options.stop_time_hours == pytest.approx(3.2 / 60, rel=0.01)
    assert (options.decoder_layers, options.decoder_embed_dim) == (papers["layers"], papers["width"])
    assert (options.attention_span, options.tokens_per_sample) == (papers["span"], papers["block"])
    assert options.bf16


def test_trainings_on_a_cpu(gpu_commands, tmp_path):
    (tmp_path / "char-PTB").mkdir()
    feedback, _ = gpu_commands.experiment("char-PTB", minutes=6, out=tmp_path, ptb=tmp_path, cpu=True)
    (options,) = trainings(as_printed(feedback))
    assert options.max_update == 20 and not options.bf16


def test_an_experiment_goes_on(gpu_commands, tmp_path):
    """For as many minutes as before, beside those that it has."""
    (tmp_path / "walk").mkdir()
    step = {"command": [], "settings": {}, "seconds": 120.0}
    write_record(str(tmp_path / "walk"), {"recipe": "random_walk", "steps": {"OUT/feedback_transformer_lm/a.pt": step}})
    found = gpu_commands.experiment("walk", minutes=6, out=tmp_path, ptb=None, cpu=True)
    assert values(found, "--stop-time-hours") == pytest.approx([(2 + 3.2) / 60, 1.6 / 60], rel=0.01)
