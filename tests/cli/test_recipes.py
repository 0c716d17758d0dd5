"""The language modeling recipes from start to finish: small models on made-up data, trained for a few updates."""

import json
import os
import platform
import re
import socket
import subprocess
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.cli.conftest import made_up_text
from tests.cli.fairseq_commands import assert_same_parameters, parameters
from tests.cli.recipes import PARTS, environment, recipe  # noqa: F401

CORPORA = ["char_ptb", "enwik8", "text8", "wikitext103"]
MODELS = ["feedback_transformer_lm", "relative_transformer_lm", "all_attention_lm"]
# A folder's name, of which a shell that does not quote makes several words, patterns or commands.
ODD_NAME = """- a 'b" $(exit) `exit`;*?&\né,"""


def made_up_corpus(name, folder):
    """Write what the recipe takes as DATA, and return its path."""
    if name in ("enwik8", "text8"):
        text = made_up_text(20_000, 1)
        if name == "text8":
            text = b'<mediawiki>\n<page>\n<text xml:space="preserve">' + text + b"[[link|20 words]]</text>\n</page>"
        (folder / "text").write_bytes(text)
        return folder / "text"
    for split in ("train", "valid", "test"):
        text = made_up_text(12_000, 1)
        if name == "char_ptb":
            text += b"the company\n"
        else:  # more words than the last cutoff of the adaptive softmax
            text += b" The " + b" ".join(b"word%d" % i for i in range(8100)) + b"\n"
        (folder / f"{'ptb.' if name == 'char_ptb' else ''}{split}.txt").write_bytes(text)
    return folder


def check_results(out, names):
    results = json.loads((out / "results.json").read_text())
    assert sorted(results) == sorted(names)
    for name, result in results.items():
        assert 1 < result["test_bits_per_token"] < 40 and result["parameters"] > 10_000, name
    assert (out / "curves.png").read_bytes().startswith(b"\x89PNG")
    return results


@pytest.mark.parametrize(
    "name,model",
    [
        pytest.param("enwik8", "all_attention_lm", marks=pytest.mark.slow),  # (tested by the quickstart: bytes)
        pytest.param(
            "wikitext103", "feedback_transformer_lm", marks=pytest.mark.slow
        ),  # (tested by translation: words)
    ],
)
def test_small_recipe_starts(tmp_path, name, model):
    data, out = made_up_corpus(name, tmp_path), tmp_path / "out"
    arguments = ["--layers", "1", "--models", model, "--steps", "prepare train", "--out", out]
    done = recipe(f"language_modeling/{name}", "--small", data, *arguments, "--updates", 2)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert (out / f"{model}-1/checkpoint_best.pt").exists()


@pytest.mark.parametrize("name", ["char_ptb", "text8"])
def test_small_recipe_prepares(tmp_path, name):
    """The step prepare; test_small_recipe (--slow) trains on the data."""
    folder = tmp_path / ODD_NAME
    folder.mkdir()
    data, out = made_up_corpus(name, folder), folder / "out"
    done = recipe(f"language_modeling/{name}", "--small", data, "--steps", "prepare", "--out", out)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert (out / "data/train.bin").exists() and (out / "data/dict.txt").exists()
    again = recipe(f"language_modeling/{name}", "--small", data, "--steps", "prepare", "--out", out)
    assert again.returncode == 0 and again.stdout == "== prepare: done already\n"


def test_data_is_prepared_by_one_run(tmp_path):
    """A second run on the same folder stops at once; what a killed run has left is replaced."""
    data, out = made_up_corpus("text8", tmp_path), tmp_path / "out"
    owner = out / "data.tmp/.owner"
    owner.parent.mkdir(parents=True)

    def prepare():
        return recipe("language_modeling/text8", "--small", data, "--steps", "prepare", "--out", out)

    for text, message in (
        (f"{os.getpid()} {platform.node()}", f"process {os.getpid()} on {platform.node()} is writing it; wait for"),
        ("1 elsewhere", "process 1 on elsewhere is writing it"),
    ):
        owner.write_text(text + "\n")
        refused = prepare()
        assert refused.returncode == 1 and message in refused.stderr and owner.exists()
    owner.unlink()
    assert "another run is writing it" in prepare().stderr
    killed = subprocess.Popen(["true"])
    killed.wait()
    owner.write_text(f"{killed.pid} {platform.node()}\n")
    done = prepare()
    assert done.returncode == 0 and not owner.parent.exists() and not (out / "data/.owner").exists(), done.stderr


def test_two_machines(tmp_path):
    """Both run the recipe, the first prepares the data; the model is that of one machine with --update-freq 2."""
    folder, model = tmp_path / ODD_NAME, "relative_transformer_lm"
    folder.mkdir()
    data = made_up_corpus("enwik8", folder)
    common = ["--small", data, "--layers", 1, "--models", model, "--steps", "prepare train", "--updates", 2, "--out"]
    with socket.socket() as free:
        free.bind(("localhost", 0))
        rendezvous = f"localhost:{free.getsockname()[1]}"
    nodes = [folder / "two", "--nodes", 2, "--rendezvous", rendezvous, "--node-rank"]
    machines = [[*nodes, 0], [*nodes, 1], [folder / "one", "--update-freq", 2]]
    with ThreadPoolExecutor() as pool:
        for done in pool.map(lambda options: recipe("language_modeling/enwik8", *common, *options), machines):
            assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    one, two = (folder / out / f"{model}-1/checkpoint_last.pt" for out in ("one", "two"))
    assert_same_parameters(one, two)
    assert (folder / f"two/{model}-1.log.node1").exists() and (folder / "two/curves.png").exists()


@pytest.mark.slow
def test_ablation_of_persistent_vectors_starts(tmp_path):
    """N16 has 16 vectors per head, and the figure is drawn from the logs."""
    data, out = made_up_corpus("enwik8", tmp_path), tmp_path / "out"
    arguments = ["--layers", "1", "--steps", "prepare train", "--out", out, "--updates", 2]
    done = recipe("language_modeling/persistent_memory", "--small", data, *arguments, "--models", "N16")
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert (out / "figure2.png").read_bytes().startswith(b"\x89PNG")
    model = parameters(out / "N16-1/checkpoint_best.pt")
    assert model["decoder.layers.0.persistent_memory.key"].shape == (4, 16, 32)


@pytest.mark.slow
@pytest.mark.parametrize("name", CORPORA)
def test_small_recipe(tmp_path, name):
    data, out = made_up_corpus(name, tmp_path), tmp_path / "out"
    short = ["--layers", "1", "--updates", 3, "--finetune-updates", 2]
    done = recipe(f"language_modeling/{name}", "--small", data, *short, "--out", out)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    models = MODELS[: 2 if name == "char_ptb" else 3]
    results = check_results(out, [f"{model}-1{end}" for model in models for end in ("", "-finetuned")])
    feedback, baseline, *_ = (results[f"{model}-1"]["parameters"] for model in models)
    assert feedback - baseline == 2, "the weights of the memory"
    assert done.stdout.count(" continues: ") == len(models)


@pytest.mark.slow
def test_steps_and_resuming(tmp_path):
    """Steps run one by one, finished steps are skipped, and a model that was trained further is fine-tuned again."""
    data, out = made_up_corpus("enwik8", tmp_path), tmp_path / "out"
    common = ["--small", "--layers", "1", "--models", "relative_transformer_lm", "--out", out, "--finetune-updates", 2]

    def steps(todo, *arguments):
        return recipe("language_modeling/enwik8", *common, "--steps", todo, *arguments)

    assert "run step prepare first" in steps("train").stderr
    assert steps("prepare", data).returncode == 0
    assert "run step train first" in steps("finetune").stderr
    assert steps("train finetune", "--updates", "2").returncode == 0
    assert steps("train finetune", "--updates", "2").stdout.count("already trained for 2 updates") == 2
    (out / "relative_transformer_lm-1.seconds").unlink()  # as if the run had been killed
    refused = steps("train", "--updates", "4", "--", "--dropout", "0.7")
    assert refused.returncode == 1 and "trained with other options: --dropout 0.7" in refused.stderr
    done = steps("train finetune evaluate", "--updates", "4")
    assert done.returncode == 0, done.stderr
    log = (out / "relative_transformer_lm-1.log").read_text()
    assert re.findall(r'"train_num_updates": "(\d+)"', log)[-1] == "4" and "Loaded checkpoint" in log
    tuned = (out / "relative_transformer_lm-1-finetuned.log").read_text()
    assert tuned.count("fairseq-train") == 1 and '"train_num_updates": "2"' in tuned
    check_results(out, ["relative_transformer_lm-1", "relative_transformer_lm-1-finetuned"])
    data.write_bytes(made_up_text(20_000, 2))
    refused = steps("prepare", data)
    assert "holds models that were trained on other data; choose another --out" in refused.stderr
    assert (out / "data/train.bin").exists() and not (out / "data.tmp").exists()


@pytest.mark.parametrize(
    "name,arguments,message",
    [
        ("enwik8", ["--small", "/nowhere"], "error: DATA /nowhere: no such file; give enwik8"),
        ("text8", ["{text}"], "20 bytes, md5 .*text8 has 100000000 bytes, md5 3bea1919949baf155f99411df5fada7e"),
        ("enwik8", ["{text}"], "20 bytes, md5 .*enwik8 has 100000000 bytes.*intact copy, or --small DATA"),
        ("char_ptb", ["--small", "/nowhere"], "error: PTB /nowhere: no ptb.train.txt"),
        ("wikitext103", ["{text}"], "error: DATA .*give wikitext-103-v1.zip"),
        ("wikitext103", ["{zip}"], "error: .*x.zip: .*wikitext-103-v1.zip has md5 9ddaacaf"),
        ("wikitext103", ["--small"], "error: DATA is missing; give DATA or --small DATA"),
        ("enwik8", ["--epochs", "3"], "error: --epochs: unknown option; give DATA"),
        ("enwik8", ["--steps", "learn", "x"], "error: --steps learn: unknown"),
        ("enwik8", ["--layers", "3", "x"], "error: --layers: only with --small"),
        ("enwik8", ["--finetune-updates", "0"], "error: --finetune-updates 0: give a number, 1 or more"),
        ("char_ptb", ["--small", "--layers", "2 x"], "error: --layers x: give a number, 1 or more"),
        ("enwik8", ["--small", "{folder}"], "error: DATA .*: no such file"),
        ("enwik8", ["--small", "{zip}"], "error: .*x.zip: cannot be unpacked; use an intact copy with enwik8"),
        ("persistent_memory", ["--small", "{text}", "--models", "N1 all"], "--models all: unknown; give N<number>"),
        (
            "enwik8",
            ["--small", "--update-freq", "3", "{text}"],
            "--update-freq 3: 64 streams cannot be divided among 1",
        ),
        ("char_ptb", ["--small", "{bad}"], "ptb.train.txt: not UTF-8 text, or damaged; convert it"),
        ("enwik8", ["--small", "{text}", "--models", "*"], "--models \\*: use only letters, digits"),
        ("enwik8", ["--small", "{text}", "--models", "spam"], "--models spam: unknown; give architectures"),
        ("enwik8", ["--updates", "1 2", "x"], "--updates 1 2: takes one number"),
        ("enwik8", ["x", "--updates"], "--updates needs a value"),
        ("enwik8", ["-data"], "error: -data: unknown option"),
        ("enwik8", ["x", "--nodes", "2"], "--node-rank is missing: give this machine's number, from 0 to 1"),
        ("enwik8", ["x", "--nodes", "2", "--node-rank", "2"], "--node-rank 2: give this machine's number"),
        ("enwik8", ["x", "--nodes", "2", "--node-rank", "0"], "--rendezvous is missing: give HOST:PORT"),
        ("enwik8", ["x", "--node-rank", "0"], "--node-rank, --rendezvous: only with --nodes 2"),
    ],
)
def test_bad_input(tmp_path, name, arguments, message):
    (tmp_path / "text").write_bytes(made_up_text(20, 1))
    (tmp_path / "x.zip").write_bytes(b"PK")
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad/ptb.train.txt").write_bytes("é".encode("latin-1"))
    paths = dict(text=tmp_path / "text", zip=tmp_path / "x.zip", folder=tmp_path, bad=tmp_path / "bad")
    arguments = ["--out", tmp_path / "out", *(argument.format(**paths) for argument in arguments)]
    done = recipe(f"language_modeling/{name}", *arguments)
    (line,) = done.stderr.splitlines()
    assert done.returncode != 0 and re.search(message, line)
    assert (tmp_path / "out").exists() == ("--update-freq" in arguments), "no half-written data"


@pytest.mark.parametrize(
    "out,message",
    [
        ("text/out", "--out .*/text/out: cannot create this folder"),
        ("a:b", "--out .*/a:b: fairseq splits paths at "),
        ("${b}", r"--out .*/\${b}: fairseq expands"),
        ("text/a\nb", r"--out .*/text/a\\nb: cannot create this folder"),
    ],
)
def test_bad_out(tmp_path, out, message):
    (tmp_path / "text").write_bytes(made_up_text(200, 1))
    done = recipe("language_modeling/enwik8", "--small", tmp_path / "text", "--out", tmp_path / out)
    (line,) = done.stderr.splitlines()
    assert done.returncode != 0 and re.search(message, line)
    assert [path.name for path in tmp_path.iterdir()] == ["text"]


@pytest.mark.parametrize("part", PARTS)
def test_parts_of_recipes_do_not_run(part):
    done = recipe(part)
    assert done.returncode != 0 and re.fullmatch("error: .*: not a script of its own; run a recipe.*\n", done.stderr)


@pytest.mark.slow
@pytest.mark.parametrize(
    "script,models,runs,figure",
    [
        ("ablation", "transformer-post feedback-pre-span-bptt", ["transformer-post-1", "feedback-pre-span-bptt-1"], ""),
        ("training_time", "transformer initialised-bptt", ["transformer-1", "initialised-bptt-1"], "hours.png"),
        ("end_of_line", "without-eos with-eos", ["without-eos-1", "without-eos-1-finetuned", "with-eos-1"], ""),
    ],
)
def test_experiments_on_wikitext(tmp_path, script, models, runs, figure):
    """The small settings of the papers' experiments, from the data to the comparison."""
    data, out = made_up_corpus("wikitext103", tmp_path), tmp_path / "out"
    short = ["--layers", 1, "--updates", 4, "--finetune-updates", 2, "--models", models]
    if script != "end_of_line":
        short += ["--steps", "prepare train evaluate"]
    done = recipe(f"language_modeling/wikitext103/{script}.sh", "--small", data, *short, "--out", out)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    results = check_results(out, runs)
    assert all(0 < result["test_context"] <= 100 and result["dev_perplexity"] > 1 for result in results.values())
    assert "the recipe's small setting, which is not comparable" in done.stdout
    assert not figure or (out / figure).read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_seeds_and_depths(tmp_path):
    """Two seeds and two depths, two runs at a time: means and spreads, and the figure against the number of layers."""
    data, out = made_up_corpus("char_ptb", tmp_path), tmp_path / "out"
    short = ["--layers", "1 2", "--seeds", "1 2", "--updates", 2, "--models", "relative_transformer_lm initialised"]
    short += ["--jobs", 2]
    done = recipe(
        "language_modeling/char_ptb", "--small", data, *short, "--steps", "prepare train evaluate", "--out", out
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    runs = [f"{layers}{seed}" for layers in (1, 2) for seed in ("", "-seed2")]
    check_results(out, [f"{model}-{run}" for run in runs for model in ("relative_transformer_lm", "initialised")])
    assert " ± " in done.stdout and (out / "layers.png").read_bytes().startswith(b"\x89PNG")
