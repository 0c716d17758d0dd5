"""Mistakes of new users that fairseq's own code meets: one line, which names the option."""

import importlib.util

import pytest
import torch

from tests.cli.command_server import refused
from tests.cli.fairseq_commands import PLUGIN, TINY_MODEL, TRAINING, options, train
from tests.cli.parallel_text import TINY


def without(package):
    return pytest.mark.skipif(importlib.util.find_spec(package) is not None, reason=f"{package} is installed")


on_cpu = pytest.mark.skipif(torch.cuda.is_available(), reason="on a GPU this runs")

LANGUAGE_MODELS = [
    (["--arch", "feedback_transformer_ml"], "invalid choice: 'feedback_transformer_ml'; did you mean feedback_transf"),
    (["--decoder-embed-dim", "1000000"], "out of memory: a single tensor needs 4,000 GB"),
    (["--lr", "1e10"], "the gradients are NaN or infinite; try a lower --lr"),
    (["--distributed-world-size", "9"], "--distributed-world-size 9: .*torchrun --nproc-per-node 9"),
    pytest.param(["--profile"], "PyTorch finds no GPU that it can use; .*--profile", marks=on_cpu),
    pytest.param(["--optimizer", "lamb"], "install apex .*github.com/NVIDIA/apex", marks=without("apex")),
    pytest.param(["--optimizer", "cpu_adam"], "pip install deepspeed", marks=without("deepspeed")),
    pytest.param(["--ddp-backend", "fully_sharded"], "pip install fairscale", marks=without("fairscale")),
    pytest.param(["--zero-sharding", "os"], "pip install fairscale", marks=without("fairscale")),
    pytest.param(["--use-plasma-view"], "pip install pyarrow", marks=without("pyarrow")),
]


def words(case):
    return " ".join(case) if isinstance(case, list) else ""


@pytest.mark.parametrize("arguments,message", LANGUAGE_MODELS, ids=words)
def test_language_models(commands, byte_data, tmp_path, arguments, message):
    values = {**TINY_MODEL, **TRAINING, "max_update": 4, "save_dir": tmp_path / "ck"}
    refused(commands.run("fairseq-train", byte_data, *options(values), "--user-dir", PLUGIN, *arguments), message)
    assert not list(tmp_path.glob("ck/checkpoint*"))


def test_fairseqs_own_errors_keep_their_traceback(commands, byte_data):
    values = dict(task="language_modeling", arch="transformer_lm", max_tokens=100, cpu=True, no_save=True)
    result = commands.run("fairseq-train", byte_data, *options(values), "--user-dir", PLUGIN, "--self-target")
    assert "Unsupported language modeling target: self" in result.errors[-1]
    assert any(line.startswith("Traceback") for line in result.errors)


@pytest.fixture
def translation(parallel_data, translation_models):
    return parallel_data, translation_models / "feedback/checkpoint_last.pt"


TRANSLATION = [
    (["--source-lang", "de", "--target-lang", "xx"], "dict.xx.txt: No such file"),
    (["--train-subset", "nowhere"], "the split nowhere is missing"),
    (["--max-source-positions", "1", "--max-target-positions", "1"], "train: all .* samples .*--max-source-pos"),
]


@pytest.mark.parametrize("arguments,message", TRANSLATION, ids=words)
def test_translation(commands, translation, tmp_path, arguments, message):
    values = {**TINY, "label_smoothing": None, "criterion": "cross_entropy", "max_update": 2, "save_dir": tmp_path}
    refused(commands.run("fairseq-train", translation[0], *options(values), "--user-dir", PLUGIN, *arguments), message)
    assert not list(tmp_path.glob("*.pt"))


GENERATION = [
    (["--gen-subset", "nowhere"], "the split nowhere is missing; .*--gen-subset"),
    (["--scoring", "chrf", "--sacrebleu"], None),
    pytest.param(["--scoring", "wer"], "pip install editdistance", marks=without("editdistance")),
]


@pytest.mark.parametrize("arguments,message", GENERATION, ids=words)
def test_generation(commands, translation, arguments, message):
    data, model = translation
    arguments = ["--path", model, "--cpu", "--num-workers", 0, "--user-dir", PLUGIN, "--max-len-b", 3, *arguments]
    result = commands.run("fairseq-generate", data, *arguments)
    if message is None:
        assert result.status == 0, result.errors
    else:
        refused(result, message)


def test_labels_of_a_translation_model(commands, translation):
    """Whether or not fairseq finds a language pair in the folder."""
    data, model = translation
    for folder, message in ((data, "was not trained with --labels"), (model.parent, "Could not infer language pair")):
        result = commands.run("fb-fairseq", "evaluate-labels", folder, "--path", model)
        refused(result, f"--path {model}: {message}")


def test_export_on_a_full_disk(commands, byte_data, tmp_path):
    train(byte_data, tmp_path, max_update=1)
    exported = ["fb-fairseq", "export", tmp_path / "checkpoint_last.pt", "--to", tmp_path / "out"]
    refused(commands.run(*exported, limit=5000), f"{tmp_path}/out: File too large")
    assert not list(tmp_path.glob("out/*"))
