"""Mistakes that fairseq's own code meets, most of them with an option of fairseq: one line, which names the option."""

import importlib.util

import pytest
import torch

from tests.cli.command_server import refused
from tests.cli.fairseq_commands import PLUGIN, TINY_MODEL, TRAINING, options, train
from tests.cli.parallel_text import TINY

SHOWS_WHERE = "FB_FAIRSEQ_DEBUG=1 shows where$"


def without(package):
    return pytest.mark.skipif(importlib.util.find_spec(package) is not None, reason=f"{package} is installed")


on_cpu = pytest.mark.skipif(torch.cuda.is_available(), reason="on a GPU this runs")

LANGUAGE_MODELS = [
    (["--adam-betas", "0.9"], "--adam-betas 0.9: must be two numbers in parentheses, such as"),
    (["--lr", ""], "--lr: is empty; give a number"),
    (["--update-freq", ""], "--update-freq: is empty; give a number"),
    (["--seed", "-1"], "--seed -1: must be from 0 to 4294967295"),
    (["--fp16", "--fp16-init-scale", "0"], "--fp16-init-scale 0: must be 1 or more"),
    (["--decoder-embed-dim", "1000000"], "out of memory: a single tensor needs 4,000 GB"),
    (["--decoder-layers", "1000000000"], "--decoder-layers 1000000000, .*: the model needs .* GB or more"),
    (["--lr", "1e10"], "the gradients are NaN or infinite at update [23]; try a lower --lr"),
    (["--distributed-world-size", "9"], "--distributed-world-size 9: .*torchrun --nproc-per-node 9"),
    (["--tpu"], "--tpu: torch_xla is not installed"),
    (
        ["--optimizer", "composite"],
        f"--(optimizer composite: Parameter groups|default: ConfigKeyError:) .*{SHOWS_WHERE}",
    ),
    (
        ["--optimizer", "adafactor", "--relative-step"],
        "--relative-step: fairseq always gives adafactor a learning rate",
    ),
    (["--lr-scheduler", "pass_through"], f"--lr-scheduler pass_through: .*{SHOWS_WHERE}"),
    (["--store-ema", "--ema-seed-model", "{no_ema}"], "--ema-seed-model .*: the checkpoint has no EMA; give one"),
    pytest.param(["--profile"], "--profile: needs a GPU that PyTorch can use", marks=on_cpu),
    pytest.param(["--optimizer", "lamb"], "install apex .*github.com/NVIDIA/apex", marks=without("apex")),
    pytest.param(["--optimizer", "cpu_adam"], "pip install deepspeed", marks=without("deepspeed")),
    pytest.param(["--ddp-backend", "fully_sharded"], "pip install fairscale", marks=without("fairscale")),
    pytest.param(["--zero-sharding", "os"], "pip install fairscale", marks=without("fairscale")),
    pytest.param(["--use-plasma-view"], "pip install pyarrow", marks=without("pyarrow")),
]


def words(case):
    return " ".join(case) if isinstance(case, list) else ""


@pytest.fixture(scope="module")
def no_ema(tmp_path_factory):
    path = tmp_path_factory.mktemp("no_ema") / "checkpoint.pt"
    torch.save({"extra_state": {}, "model": {}}, path)
    return path


@pytest.mark.parametrize("arguments,message", LANGUAGE_MODELS, ids=words)
def test_language_models(commands, byte_data, no_ema, tmp_path, arguments, message):
    values = {**TINY_MODEL, **TRAINING, "max_update": 4, "save_dir": tmp_path / "ck"}
    arguments = [argument.format(no_ema=no_ema) for argument in arguments]
    refused(commands.run("fairseq-train", byte_data, *options(values), "--user-dir", PLUGIN, *arguments), message)
    assert not list(tmp_path.glob("ck/checkpoint*"))


@pytest.mark.parametrize("arguments,message", [(["--self-target"], "self"), (["--past-target"], "past")], ids=words)
def test_stock_language_models(commands, byte_data, arguments, message):
    values = dict(task="language_modeling", arch="transformer_lm", max_tokens=100, cpu=True, no_save=True)
    result = commands.run("fairseq-train", byte_data, *options(values), "--user-dir", PLUGIN, *arguments)
    refused(result, f"Unsupported language modeling target: {message}; {SHOWS_WHERE}")


@pytest.fixture
def translation(parallel_data, translation_models):
    return parallel_data, translation_models / "feedback/checkpoint_last.pt"


TRANSLATION = [
    (["--source-lang", "de", "--target-lang", "xx"], "dict.xx.txt: No such file"),
    (["--combine-valid-subsets", "--valid-subset", "valid,test"], "--valid-subset valid,test: --combine-valid-subsets"),
    (["--criterion", "cross_entropy", "--adaptive-softmax-cutoff", "10,20"], "needs --criterion adaptive_loss"),
    (["--criterion", "ctc"], f"--criterion ctc: .*{SHOWS_WHERE}"),
    (["--max-source-positions", "1", "--max-target-positions", "1"], "all samples .* longer than --max-source-pos"),
]


@pytest.mark.parametrize("arguments,message", TRANSLATION, ids=words)
def test_translation(commands, translation, tmp_path, arguments, message):
    values = {**TINY, "label_smoothing": None, "criterion": "cross_entropy", "max_update": 2, "save_dir": tmp_path}
    refused(commands.run("fairseq-train", translation[0], *options(values), "--user-dir", PLUGIN, *arguments), message)
    assert not list(tmp_path.glob("*.pt"))


GENERATION = [
    (["--gen-subset", "nowhere"], f"--gen-subset nowhere: Dataset not found.*{SHOWS_WHERE}"),
    (["--print-step"], "--print-step: is for models that refine a text in several passes"),
    (["--bpe", "bytes"], "--bpe bytes: fairseq's commands cannot use it"),
    (["--bpe", "characters"], "--bpe characters: fairseq's commands cannot use it"),
    (["--bpe", "byte_bpe"], "--sentencepiece-model-path: "),
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
