"""Language modelling recipes from start to finish: small models on made-up data, trained for a few updates."""

import json
import re

import pytest

from tests.cli.conftest import made_up_text
from tests.cli.fairseq_commands import assert_same_parameters, free_port, parameters
from tests.cli.odd_names import ODD_NAME
from tests.cli.recipes import PNG, made_up_corpus, recipe  # noqa: F401

MODELS = ["feedback_transformer_lm", "relative_transformer_lm", "all_attention_lm"]
TRANSFORMER = "relative_transformer_lm"


def check_results(out, names):
    results = json.loads((out / "results.json").read_text())
    assert sorted(results) == sorted(names)
    for name, result in results.items():
        assert 1 < result["test_bits_per_token"] < 40 and result["parameters"] > 10_000, name
    assert (out / "curves.png").read_bytes().startswith(PNG)
    return results


def test_steps_and_resuming(tmp_path, recipe):  # noqa: F811
    """Steps run one by one, finished steps are skipped, and a model that was trained further is fine-tuned again."""
    folder = tmp_path / ODD_NAME
    folder.mkdir()
    data, out = made_up_corpus("enwik8", folder), folder / "out"
    common = ["--small", "--layers", 1, "--models", TRANSFORMER, "--out", out, "--finetune-updates", 2]

    def steps(todo, *arguments, **expected):
        return recipe("enwik8", *common, "--steps", todo, *arguments, **expected)

    assert "run step prepare first" in steps("train", fails=True).errors
    steps("prepare", data)
    assert steps("prepare", data).out == "== prepare: done already\n"
    assert "run step train first" in steps("finetune", fails=True).errors
    steps("train finetune", "--updates", 2)
    again = steps("train finetune generate", "--updates", 2).out
    assert again.count("already trained for 2 updates") == 2 and f"{TRANSFORMER}-1 continues: In the beg" in again
    log = out / f"{TRANSFORMER}-1.log"
    (out / f"{TRANSFORMER}-1.seconds").unlink()  # as if the run had been killed
    refused = steps("train", "--updates", 4, "--", "--dropout", "0.7", fails=True)
    assert "has other options: --dropout 0.7" in refused.errors
    steps("train finetune evaluate", "--updates", 4)
    text = log.read_text()
    assert re.findall(r'"train_num_updates": "(\d+)"', text)[-1] == "4" and "Loaded checkpoint" in text
    tuned = (out / f"{TRANSFORMER}-1-finetuned.log").read_text()
    assert tuned.count("fairseq-train") == 1 and '"train_num_updates": "2"' in tuned
    check_results(out, [f"{TRANSFORMER}-1", f"{TRANSFORMER}-1-finetuned"])
    data.write_bytes(made_up_text(20_000, 2))
    refused = steps("prepare", data, fails=True)
    assert "holds models of other data; choose another --out" in refused.errors.replace("\\n", "")
    assert (out / "data/train.bin").exists() and not (out / "data.tmp").exists()


@pytest.mark.parametrize("name", ["char_ptb", "text8"])
def test_small_recipe_prepares(tmp_path, recipe, name):  # noqa: F811
    """The step prepare; test_small_recipe (--slow) trains on the data."""
    folder = tmp_path / ODD_NAME
    folder.mkdir()
    data, out = made_up_corpus(name, folder), folder / "out"
    recipe(name, "--small", data, "--steps", "prepare", "--out", out)
    assert (out / "data/train.bin").exists() and (out / "data/dict.txt").exists()


def test_two_machines(tmp_path, recipe, commands):  # noqa: F811
    """Both run the recipe, the first prepares the data; the model is that of one machine with --update-freq 2."""
    folder = tmp_path / ODD_NAME
    folder.mkdir()
    data = made_up_corpus("enwik8", folder)
    common = ["--small", data, "--layers", 1, "--models", TRANSFORMER, "--steps", "prepare train", "--updates", 2]
    nodes = ["--out", folder / "two", "--nodes", 2, "--rendezvous", f"localhost:{free_port()}", "--node-rank"]

    machines = [
        commands.start("fb-fairseq", "recipe", "enwik8", *common, *nodes, rank, printed=tmp_path / f"printed{rank}")
        for rank in range(2)
    ]
    recipe("enwik8", *common, "--out", folder / "one", "--update-freq", 2)
    assert [machine.wait() for machine in machines] == [0, 0], [machine.lines()[-30:] for machine in machines]
    one, two = (folder / out / f"{TRANSFORMER}-1/checkpoint_last.pt" for out in ("one", "two"))
    assert_same_parameters(one, two)
    assert (folder / f"two/{TRANSFORMER}-1.log.node1").exists() and (folder / "two/curves.png").exists()


@pytest.mark.slow
def test_ablation_of_persistent_vectors_starts(tmp_path, recipe):  # noqa: F811
    """N16 has 16 vectors per head, and the figure is drawn from the logs."""
    data, out = made_up_corpus("enwik8", tmp_path), tmp_path / "out"
    arguments = ["--layers", 1, "--steps", "prepare train", "--out", out, "--updates", 2]
    recipe("persistent_memory", "--small", data, *arguments, "--models", "N16")
    assert (out / "figure2.png").read_bytes().startswith(PNG)
    model = parameters(out / "N16-1/checkpoint_best.pt")
    assert model["decoder.layers.0.persistent_memory.key"].shape == (4, 16, 32)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["char_ptb", "enwik8", "text8", "wikitext103"])
def test_small_recipe(tmp_path, recipe, name):  # noqa: F811
    data, out = made_up_corpus(name, tmp_path), tmp_path / "out"
    short = ["--layers", 1, "--updates", 3, "--finetune-updates", 2]
    done = recipe(name, "--small", data, *short, "--out", out)
    results = check_results(out, [f"{model}-1{end}" for model in MODELS for end in ("", "-finetuned")])
    feedback, baseline, *_ = (results[f"{model}-1"]["parameters"] for model in MODELS)
    assert feedback - baseline == 2, "the weights of the memory"
    assert done.out.count(" continues: ") == len(MODELS)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name,models,runs,figure",
    [
        ("ablation", "transformer-post feedback-pre-span-bptt", ["transformer-post-1", "feedback-pre-span-bptt-1"], ""),
        (
            "training_time",
            "transformer-post initialised-bptt",
            ["transformer-post-1", "initialised-bptt-1"],
            "hours.png",
        ),
        ("end_of_line", "without-eos with-eos", ["without-eos-1", "without-eos-1-finetuned", "with-eos-1"], ""),
    ],
)
def test_experiments_on_wikitext(tmp_path, recipe, name, models, runs, figure):  # noqa: F811
    """The small settings of the papers' experiments, from the data to the comparison."""
    data, out = made_up_corpus("wikitext103", tmp_path), tmp_path / "out"
    short = ["--layers", 1, "--updates", 4, "--finetune-updates", 2, "--models", models]
    if name != "end_of_line":
        short += ["--steps", "prepare train evaluate"]
    done = recipe(f"wikitext103_{name}", "--small", data, *short, "--out", out)
    results = check_results(out, runs)
    assert all(0 < result["test_context"] <= 100 and result["dev_perplexity"] > 1 for result in results.values())
    assert "the recipe's small setting, which is not comparable" in done.out
    assert not figure or (out / figure).read_bytes().startswith(PNG)


@pytest.mark.slow
def test_seeds_and_depths(tmp_path, recipe):  # noqa: F811
    """Two seeds and two depths, two runs at a time: means and spreads, and the figure against the number of layers."""
    data, out = made_up_corpus("char_ptb", tmp_path), tmp_path / "out"
    short = ["--layers", "1 2", "--seeds", "1 2", "--updates", 2, "--models", f"{TRANSFORMER} initialised", "--jobs", 2]
    done = recipe("char_ptb", "--small", data, *short, "--steps", "prepare train evaluate", "--out", out)
    runs = [f"{layers}{seed}" for layers in (1, 2) for seed in ("", "-seed2")]
    check_results(out, [f"{model}-{run}" for run in runs for model in (TRANSFORMER, "initialised")])
    assert " ± " in done.out and (out / "layers.png").read_bytes().startswith(PNG)
