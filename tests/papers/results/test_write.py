"""How logs become results."""

import json

import pytest

from fb_fairseq.errors import UserError
from fb_fairseq.papers.results import bits
from fb_fairseq.papers.results.record import write_record
from fb_fairseq.papers.results.write import result_of
from tests.papers.programs import run_module

EVALUATED = (
    "2026 | INFO | Evaluated {} tokens in 3.2s (3.00 tokens/s)\n2026 | INFO | Loss (base 2): {}, Perplexity: 9\n"
)
LOG = "2026 | INFO | num. shared model params: 1,000 (num. trained: 1,000)\nNamespace(attention_span={}, x=1)\n"
UPDATES = '{{"num_updates": "{}"}}\n'


def training(run, seconds, *options):
    """What the record has of a training."""
    found = {"command": ["fairseq-train", *options], "reads": {}, "writes": [f"OUT/{run}/best.pt", f"OUT/{run}.log"]}
    return {**found, "settings": {"lr": "1"}, "seconds": seconds, "hardware": "NVIDIA H100", "commit": "abc"}


@pytest.fixture
def out(tmp_path):
    """A folder with a model that starts from a Transformer, and its evaluations."""
    trainings = {"a": training("a", 1728.0), "m-2": training("m-2", 864.0, "--init", "OUT/a/best.pt")}
    write_record(str(tmp_path), {"recipe": "r", "steps": {f"OUT/{run}/best.pt": of for run, of in trainings.items()}})
    (tmp_path / "m-2.test.eval").write_text(EVALUATED.format("1,000", "2.5"))
    (tmp_path / "m-2.valid.eval").write_text(EVALUATED.format("500", "2.25"))
    (tmp_path / "m-2.log").write_text(LOG.format(10) + UPDATES.format(25) + UPDATES.format(50))
    (tmp_path / "a.log").write_text(LOG.format(10) + UPDATES.format(7))
    return tmp_path


def test_bits_per_byte(tmp_path, capsys):
    """Those of all tokens, of </s> too, are divided among the bytes."""
    (tmp_path / "eval").write_text(EVALUATED.format("1,100", "2.0"))
    (tmp_path / "data").write_bytes(b"\xff\ntest: 1 document, 1000 bytes\n")
    bits.main(str(tmp_path / "eval"), str(tmp_path / "data"))
    assert capsys.readouterr().out == "Test split: 2.200 bits per byte (1000 bytes)\n"


def test_a_language_model(out):
    identity = {"recipe": "enwik8", "small": True, "model": "m", "test_streams": 5}
    result = result_of(str(out / "m-2"), identity)
    assert result.items() >= identity.items() and result["settings"] == {"lr": "1"} and result["commit"] == "abc"
    assert (result["test_bits_per_token"], result["dev_bits_per_token"], result["num_updates"]) == (2.5, 2.25, 50)
    assert result["test_perplexity"] == pytest.approx(2**2.5, abs=1e-3) and result["hardware"] == "NVIDIA H100"
    assert (result["seconds"], result["training_days"]) == (864, 0.03), "days are also the Transformer's"
    (out / "m-2.test.eval").write_text("Killed\n")
    with pytest.raises(UserError, match="m-2.test.eval: has no bits; delete it, and run the recipe again"):
        result_of(str(out / "m-2"), identity)
    with pytest.raises(UserError, match="/other: was not trained by a recipe"):
        result_of(str(out / "other"), identity)


def test_a_part_of_an_experiment(out):
    """The record is in the folder above it."""
    write_record(str(out), {"recipe": "r", "steps": {"OUT/walk/m/best.pt": training("walk/m", 60.0)}})
    (out / "walk").mkdir()
    for name in ("m.test.eval", "m.valid.eval", "m.log"):
        (out / "walk" / name).write_text((out / name.replace("m", "m-2", 1)).read_text())
    assert result_of(str(out / "walk/m"), {"recipe": "r", "model": "m"})["seconds"] == 60


def test_a_toy_task(out):
    """The time of a curriculum's stages is its own."""
    (out / "m-2.accuracy").write_text('{"written_by": "x", "accuracy": 90.0}')
    line = '| valid | {"valid_accuracy": "%s"}\n'
    (out / "m-2.log").write_text((out / "m-2.log").read_text() + line % "80.5" + line % "70.5")
    result = result_of(str(out / "m-2"), {"test_streams": 5})
    assert (result["accuracy"], result["dev_accuracy"], result["seconds"], result["num_updates"]) == (
        90,
        80.5,
        2592,
        57,
    )
    assert "written_by" not in result


def test_a_translation_model(out):
    line = '2026-11-24 02:17:43 | INFO | valid | {"epoch": 1, "valid_loss": "%s", "valid_nll_loss": "%s"}\n'
    losses = (("4.5", "3.0"), ("4.25", "3.25"), ("4.75", "3.5"))
    (out / "m-2.log").write_text(LOG + "".join(line % each for each in losses))
    (out / "m-2.scores").write_text('{"sacrebleu": 30.5, "lenpen": 1.5, "dev_score": 31.5}')
    (out / "m-2.test").write_text("Translated 20 sentences (99 tokens) in 2s (1.50 sentences/s, 71.5 tokens/s)\n")
    result = result_of(str(out / "m-2"), {"test_streams": 5})
    assert (result["sacrebleu"], result["dev_score"], result["dev_nll"]) == (30.5, 31.5, 3.25)
    assert result["decoded_tokens_per_second"] == 71.5 and result["parameters"] == 1000


def test_the_command(out):
    """It writes the result of a run, and those of all."""
    done = run_module(
        "results.write", out / "m-2", '--recipe="r"', '--data="--length 8"', "--small=false", "--test_streams=5"
    )
    assert done.status == 0 and "test_bits_per_token 2.5" in done.out and "hardware" not in done.out
    assert json.loads((out / "m-2.json").read_text())["data"] == "--length 8"
    (out / "speed.json").write_text("{}")
    assert run_module("results.write", out).status == 0
    assert list(json.loads((out / "results.json").read_text())) == ["m-2"]
