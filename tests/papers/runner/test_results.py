"""How recipes turn logs into results.json and figures."""

import itertools
import json

import pytest
import torch

from fb_fairseq.errors import UserError
from fb_fairseq.hardware import training_hardware
from fb_fairseq.papers.runner import language_modeling, translation
from fb_fairseq.papers.runner.command import find
from fb_fairseq.papers.runner.figures import against
from fb_fairseq.papers.runner.results import grouped
from fb_fairseq.papers.runner.shell import Shell
from fb_fairseq.papers.runner.sweep import Call

SHELL = Shell("/")
IDENTITY = {"recipe": "enwik8", "small": True, "model": "m", "layers": 2, "seed": 3}
EVALUATED = (
    "2026 | INFO | Evaluated {} tokens in 3.2s (3.00 tokens/s)\n2026 | INFO | Loss (base 2): {}, Perplexity: 9\n"
)
PARAMETERS = "2026 | INFO | num. shared model params: 1,000 (num. trained: 1,000)\n"


def language_model(folder, span=10):
    run = folder / "m-2-finetuned"
    run.mkdir()
    torch.save({"model": {}, "cfg": {"model": {"attention_span": span}}}, run / "checkpoint_best.pt")
    (folder / "m-2-finetuned.eval").write_text(EVALUATED.format("1,000", "2.5"))
    (folder / "m-2-finetuned.valid.eval").write_text(EVALUATED.format("500", "2.25"))
    (folder / "m-2-finetuned.log").write_text(PARAMETERS)
    (folder / "m-2-finetuned.seconds").write_text("864\n")
    (folder / "m-2-finetuned.hardware").write_text("NVIDIA H100\n")
    return run


def test_results_of_a_language_model(tmp_path, capsys):
    run = language_model(tmp_path)
    language_modeling.write_results(SHELL, str(run), IDENTITY, streams=5)
    result = json.loads((tmp_path / "m-2-finetuned.json").read_text())
    assert result["finetuned"] and result["small"]
    assert (result["model"], result["layers"], result["seed"]) == ("m", 2, 3)
    assert result["test_bits_per_token"] == 2.5 and result["dev_bits_per_token"] == 2.25
    assert result["test_perplexity"] == pytest.approx(2**2.5, abs=1e-3) and result["training_days"] == 0.01
    assert result["hardware"] == "NVIDIA H100", "of the training, not of this machine"
    # each of 5 streams has 200 tokens, of which the first ten see 0, 1, …, 9 of a span of 10
    assert result["test_context"] == pytest.approx(100 * (200 * 10 - 55) / (200 * 10), abs=0.06)
    assert "with 97.2 % of the attention span on average" in capsys.readouterr().out


def test_days_of_training(tmp_path):
    """They include those of the runs that a model starts from; without the time of one of these, there are none."""
    run, origin = language_model(tmp_path), tmp_path / "transformer-2"
    for seconds, days in ((None, None), (1728, 0.03)):
        if seconds:
            (tmp_path / "transformer-2.seconds").write_text(f"{seconds}\n")
        language_modeling.write_results(SHELL, str(run), IDENTITY, streams=5, before=[str(origin)])
        result = json.loads((tmp_path / "m-2-finetuned.json").read_text())
        assert result["seconds"] == 864 and result.get("training_days") == days


@pytest.mark.parametrize(
    "recipe,name,tuned,before",
    [
        ("wikitext103_training_time", "initialised-bptt", False, ["transformer-post-2-seed3"]),
        ("wikitext103_training_time", "feedback", False, []),
        ("wikitext103", "initialised", True, ["relative_transformer_lm-2-seed3", "initialised-2-seed3"]),
        ("wikitext103_end_of_line", "with-eos", False, ["without-eos-2-seed3", "without-eos-2-seed3-finetuned"]),
    ],
)
def test_runs_that_come_before(tmp_path, recipe, name, tuned, before):
    recipe = find(recipe)
    words = ["--small", str(tmp_path), "--models", name, "--seeds", "3", "--out", str(tmp_path)]
    (run,) = Call(recipe, SHELL, recipe.parser().parse(words)).runs
    found = language_modeling.before(run, str(tmp_path / (run.name + "-finetuned" * tuned)))
    assert found == [str(tmp_path / other) for other in before]


def test_hardware(monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    assert training_hardware().endswith(", 2 threads") and len(training_hardware()) > len(", 2 threads")
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "NVIDIA H100")
    for count, words in ((1, "NVIDIA H100"), (8, "8 x NVIDIA H100")):
        monkeypatch.setattr(torch.cuda, "device_count", lambda count=count: count)
        assert training_hardware() == words


def test_a_span_longer_than_the_streams(tmp_path):
    run = language_model(tmp_path, span=1000)
    language_modeling.write_results(SHELL, str(run), {**IDENTITY, "layers": None}, streams=5)
    result = json.loads((tmp_path / "m-2-finetuned.json").read_text())
    assert result["test_context"] == pytest.approx(100 * (199 / 2) / 1000, abs=0.06) and result["layers"] is None


def test_an_evaluation_without_results(tmp_path):
    run = language_model(tmp_path)
    (tmp_path / "m-2-finetuned.eval").write_text("Killed\n")
    with pytest.raises(UserError, match="m-2-finetuned.eval: has no result; run the same command again"):
        language_modeling.write_results(SHELL, str(run), IDENTITY, streams=5)


def test_results_of_a_translation_model(tmp_path):
    run = tmp_path / "m-2"
    line = '2026-11-24 02:17:43 | INFO | valid | {"epoch": 1, "valid_loss": "%s", "valid_nll_loss": "%s"}\n'
    losses = (("4.5", "3.0"), ("4.25", "3.25"), ("4.75", "3.5"))
    (tmp_path / "m-2.log").write_text(PARAMETERS + "".join(line % each for each in losses))
    (tmp_path / "m-2.tuned").write_text("--lenpen\n1.5\n--max-len-b\n100\n--min-len\n20\n")
    (tmp_path / "m-2.dev").write_text("31.5\n")
    (tmp_path / "m-2.seconds").write_text("90\n")
    (tmp_path / "m-2.hardware").write_text("NVIDIA H100\n")
    translated = "Translated 20 sentences (99 tokens) in 2s (1.50 sentences/s, 71.5 tokens/s)\n"
    (tmp_path / "m-2.test.err").write_text(translated)
    identity = {**IDENTITY, "projections": "shared"}
    translation.write_results(SHELL, str(run), identity, '{"sacrebleu": 30.5}')
    result = json.loads((tmp_path / "m-2.json").read_text())
    assert (result["lenpen"], result["max_len_b"], result["min_len"]) == (1.5, 100, 20)
    assert (result["sacrebleu"], result["dev_score"], result["dev_nll"]) == (30.5, 31.5, 3.25)
    assert result["decoded_tokens_per_second"] == 71.5 and result["projections"] == "shared"
    assert (result["seconds"], result["hardware"]) == (90, "NVIDIA H100")
    assert result["parameters"] == 1000


def test_figure_against_layers(tmp_path, capsys):
    runs = [
        dict(recipe="r", small=True, model=model, layers=layers, seed=seed, sacrebleu=20 + layers + seed)
        for model, layers, seed in itertools.product(("feedback", "transformer"), (4, 1, 2), (1, 2))
    ]
    (tmp_path / "results.json").write_text(json.dumps({str(i): run for i, run in enumerate(runs)}))
    against.main(str(tmp_path), "layers", "sacrebleu", "decoded_tokens_per_second")
    assert (tmp_path / "layers.png").read_bytes().startswith(b"\x89PNG") and "layers.png" in capsys.readouterr().out
    drawn = against.lines(grouped(runs), "layers", "sacrebleu")
    assert list(drawn) == ["Feedback Transformer", "Transformer"]
    assert [group.identity["layers"] for group in drawn["Feedback Transformer"]] == [1, 2, 4]
    assert drawn["Feedback Transformer"][0].values("sacrebleu") == [22, 23]
    with pytest.raises(UserError, match="name another metric"):
        against.main(str(tmp_path), "layers", "rougeL")


def test_figure_against_the_learning_rate(tmp_path):
    """Models whose names end with the value are one line."""
    runs = [
        dict(recipe="r", model=f"feedback-lr{lr}", lr=lr, seed=seed, test_perplexity=20 + lr)
        for lr, seed in itertools.product((0.01, 0.001), (1, 2))
    ]
    (drawn,) = against.lines(grouped(runs), "lr", "test_perplexity").items()
    assert drawn[0] == "Feedback Transformer" and [against.value_of(group, "lr") for group in drawn[1]] == [0.001, 0.01]
