"""Mistakes in whole commands: one line on standard error that names the option or file, status 2, nothing written."""

import re
import shutil
import subprocess
import sys

import pytest
import torch
from fairseq.data import indexed_dataset

from fb_fairseq.commands import preprocess_bytes
from fb_fairseq.errors import UserError
from tests.cli.checkpoints import eval_lm
from tests.cli.command_server import refused
from tests.cli.fairseq_commands import PLUGIN, TINY_MODEL, TRAINING, options, train
from tests.conftest import REPOSITORY

TASK = ["--user-dir", PLUGIN, "--task", "streaming_lm", "--cpu"]


@pytest.fixture(scope="module")
def trained(byte_data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained")
    train(byte_data, folder, max_update=4)
    return folder


TRAIN = [
    (["--batch-size-valid=-3"], "--batch-size-valid -3, "),
    (["--update-freq", "0"], "--update-freq .0.: must be 1 or more"),
    (["--update-freq", "1,-1"], "--update-freq .1, -1.: must be 1 or more"),
    (["--lr=-1"], "--lr .-1.0.: must be 0 or more"),
    (["--lr", "nan"], "--lr"),
    (["--clip-norm", "nan"], "--clip-norm nan: must be a number"),
    (["--clip-norm=-1"], "--clip-norm -1.0: must be 0 or more"),
    (["--dropout", "nan"], "--dropout nan: must be a number"),
    (["--dropout", "1.5"], "--dropout 1.5: must be a probability below 1"),
    (["--adaptive-span-loss", "nan", "--adaptive-span"], "--adaptive-span-loss nan: must be a number"),
    (["--weight-decay", "nan"], "--weight-decay nan"),
    (["--adam-betas", "(nan, 0.9)"], r"'\(nan, 0.9\)' is code, or not a valid value"),
    (["--adam-betas", "__import__('os').getpid()"], "is code, or not a valid value; .*--adam-betas"),
    (["--memory-composition", "layer:²"], "--memory-composition layer:².*give layer:0"),
    (["--memory-composition", "layer:-1"], "--memory-composition layer:-1"),
    (["--arch", "nosuch"], "invalid choice: 'nosuch'; --help lists all"),
    (["--no-such-option", "3"], "unrecognized arguments: --no-such-option"),
    (["--attention-span", "ten"], "--attention-span.*'ten'"),
    (["--batch-size-valid", "7"], "--batch-size-valid 7, --valid-streams 3: both"),
    (["--max-tokens", "100"], "--max-tokens has no meaning on streams.*give --batch-size 14"),
    (["--sample-break-mode", "eos"], "--sample-break-mode eos.*leave it out"),
    (["--grouped-shuffling"], "--grouped-shuffling: streams are never shuffled"),
    (["--curriculum", "1"], "--curriculum: streams are never shuffled; leave it out"),
    (["--sentence-avg"], "--sentence-avg: --criterion lm_loss averages over tokens"),
    (["--write-checkpoints-asynchronously"], "--write-checkpoints-asynchronously: .*no checkpoint_last.pt"),
    (["--save-async"], "--write-checkpoints-asynchronously: "),
    (["--update-freq", "1,2.5"], "--update-freq: 1,2.5: must be whole numbers"),
    (["--adam-betas", "(1.5, 0.9)"], r"--adam-betas \(1.5, 0.9\): must be from 0 to 0.999999"),
    (
        ["--lr-scheduler", "inverse_sqrt", "--warmup-init-lr=-5"],
        "--warmup-init-lr -5.0: must be 0 or more",
    ),
    (["--lr-shrink=-1"], "--lr-shrink -1.0: must be 0 or more"),
    (["--required-batch-size-multiple", "8"], "--required-batch-size-multiple 8: --batch-size 4"),
    (["--restore-file", "nowhere.pt"], "--restore-file nowhere.pt: no such file"),
    (["--restore-file", "{folder}"], "--restore-file .*: no such file"),
    (["--finetune-from-model", "nowhere.pt"], "--finetune-from-model nowhere.pt: no such file"),
    (["--save-dir", "{file}"], "--save-dir .*/file: .*/file is a file; give the name of a folder"),
    (["--save-dir", "{file}/below"], "--save-dir .*/below: .*/file is a file; give the name of a folder"),
    (["--save-dir", "/proc/below"], "--save-dir /proc/below: No such file or directory; give a folder that can be"),
    (["--train-subset", "nowhere"], "nowhere: the split is missing"),
    (["--decoder-attention-heads", "3"], "--decoder-attention-heads 3.*--decoder-head-dim"),
    (["--attention-span", "0"], "--attention-span 0"),
    (["--memory-composition", "top"], "--memory-composition top: unknown.*layer:<l>"),
    (["--memory-composition", "layer:3"], "--memory-composition layer:3.*layer:2"),
    (["--memory-projections", "none"], "--memory-projections"),
    (["--batch-size", "4000"], "--batch-size.*4000 streams.*3001 tokens"),
    (["--valid-streams", "500"], "--valid-streams: 500 streams.*400 tokens"),
    (["--valid-streams", "0"], "--valid-streams 0"),
    (["--tokens-per-sample", "0"], "--tokens-per-sample 0"),
    (["--max-tokens-valid", "100"], "--max-tokens-valid has no meaning on streams"),
    (["--skip-remainder-batch"], "--skip-remainder-batch"),
    (["--relative-positions", "none", "--decoder-learned-pos"], "--decoder-learned-pos.*stream"),
]


@pytest.mark.parametrize(
    "arguments,message", TRAIN, ids=lambda value: " ".join(value) if isinstance(value, list) else ""
)
def test_training(commands, byte_data, tmp_path, arguments, message):
    file = tmp_path / "file"
    file.write_text("text")
    values = {**TINY_MODEL, **TRAINING, "max_update": 4, "save_dir": tmp_path / "ck"}
    arguments = [argument.format(folder=tmp_path, file=file) for argument in arguments]
    refused(commands.run("fairseq-train", byte_data, *options(values), "--user-dir", PLUGIN, *arguments), message)
    assert not list(tmp_path.glob("ck/*")) and file.read_text() == "text"


def test_missing_and_empty_data(byte_data, tmp_path):
    with pytest.raises(UserError, match="nowhere/dict.txt: no such file"):
        train("nowhere", tmp_path / "ck", max_update=3)
    data = tmp_path / "data"
    shutil.copytree(byte_data, data)
    preprocess_bytes.write_split(str(data / "train"), [], preprocess_bytes.byte_dictionary(), False)
    with pytest.raises(UserError, match="data/train: the split is empty.*--train-subset"):
        train(data, tmp_path / "ck", max_update=3)
    (data / "valid.bin").unlink()
    (data / "valid.idx").unlink()
    with pytest.raises(UserError, match="data/valid: the split is missing.*--valid-subset"):
        train(data, tmp_path / "ck", max_update=3)


def test_dictionary_of_another_size(byte_data, trained, tmp_path):
    """In evaluation and when a run is resumed: the same line, not a list of shapes."""
    shutil.copytree(trained, tmp_path / "ck")
    data = tmp_path / "data"
    shutil.copytree(byte_data, data, ignore=shutil.ignore_patterns("checksums.json"))
    with open(data / "dict.txt", "a") as file:
        file.write("one 1\ntwo 1\n")
    message = "dict.txt: .*260 symbols.*262.*--srcdict"
    with pytest.raises(UserError, match=message):
        eval_lm(data, tmp_path / "ck/checkpoint_last.pt")
    with pytest.raises(UserError, match=message):
        train(data, tmp_path / "ck", max_update=6)


def test_without_architecture(commands, byte_data):
    refused(commands.run("fairseq-train", byte_data, *TASK), "--arch is missing; give one")


def test_stock_model_on_streams(commands, byte_data):
    arguments = ["--arch", "transformer_lm", "--batch-size", 2, "--no-save"]
    refused(
        commands.run("fairseq-train", byte_data, *TASK, *arguments), "transformer_lm carries no memory.*--task lang"
    )


EVALUATION = [
    ("fairseq-eval-lm", ["--path", "nowhere.pt"], "--path nowhere.pt: no such file"),
    ("fairseq-eval-lm", ["--path", "{folder}"], "folder: is a folder; give a file, for example .*checkpoint_best.pt"),
    ("fairseq-eval-lm", ["--path", "{model}:{model}"], "evaluates one model"),
    ("fairseq-eval-lm", ["--path", "{text}"], "text: not a checkpoint, or one with objects that are not data"),
    (
        "fairseq-eval-lm",
        ["--model-overrides", "{{'attention_span': 9}}"],
        "do not fit.*--model-overrides.*positions.key",
    ),
    (
        "fairseq-eval-lm",
        ["--model-overrides", "{{'attention_span'"],
        "is code, or not a valid value.*--model-overrides",
    ),
    ("fairseq-eval-lm", ["--batch-size", "3", "--valid-streams", "4"], "--batch-size 3, --valid-streams 4: both"),
    ("fairseq-eval-lm", ["--sample-break-mode", "eos"], "--sample-break-mode eos"),
    ("fairseq-eval-lm", ["--max-tokens", "400"], "--max-tokens has no meaning on streams"),
    ("fairseq-eval-lm", ["--context-window", "4"], "--context-window has no meaning on streams"),
    ("fairseq-eval-lm", ["--gen-subset", "nowhere"], "nowhere: the split is missing"),
    ("fairseq-eval-lm", ["--gen-subset", ""], "--gen-subset: the name of a split is empty"),
    (
        "fairseq-eval-lm",
        ["--valid-streams", "1", "--num-shards", "2"],
        "--num-shards 2, --shard-id 0: .*needs a stream",
    ),
    ("fairseq-eval-lm", ["--num-shards", "2", "--shard-id", "2"], "--shard-id 2: shards have the numbers 0 to 1"),
    ("fairseq-validate", ["--path", "nowhere.pt"], "--path nowhere.pt: no such file"),
    ("fairseq-validate", ["--batch-size", "3", "--valid-streams", "4"], "--batch-size 3, --valid-streams 4: both"),
    ("fairseq-validate", ["--max-tokens", "30"], "--max-tokens has no meaning on streams"),
    ("fairseq-generate", [], "--sample-break-mode eos"),
    (
        "fairseq-generate",
        ["--sample-break-mode", "eos", "--beam", "2", "--nbest", "3"],
        "--nbest 3: more than --beam 2",
    ),
    (
        "fairseq-interactive",
        ["--sampling", "--sampling-topk", "999", "--beam", "1"],
        "--sampling-topk 999: the vocabulary",
    ),
    ("fairseq-interactive", ["--retain-dropout"], "--retain-dropout: this model has dropout in training only"),
    ("fairseq-interactive", ["--sampling-topk", "9"], "--sampling-topk requires --sampling"),
    ("fairseq-interactive", ["--replace-unk"], "--replace-unk: a language model has no source"),
    ("fairseq-interactive", ["--constraints"], "--constraints: fairseq constrains translation only"),
    ("fairseq-interactive", ["--score-reference", "--input", "{text}"], "--score-reference: .*no references"),
    ("fairseq-interactive", ["--temperature", "nan"], "--temperature nan"),
    ("fairseq-interactive", ["--input", "{text}", "--max-len-b", "2"], "--max-len-b: 2 tokens are allowed"),
]


@pytest.mark.parametrize("command,arguments,message", EVALUATION)
def test_evaluation(commands, byte_data, trained, tmp_path, command, arguments, message):
    names = {"model": trained / "checkpoint_last.pt", "text": tmp_path / "text", "folder": tmp_path / "folder"}
    names["text"].write_text("some text\n")
    names["folder"].mkdir()
    arguments = [argument.format(**names) for argument in arguments]
    if "--path" not in arguments:
        arguments += ["--path", names["model"]]
    refused(commands.run(command, byte_data, *TASK, *arguments), message)


PADDING = {"all": [[1, 1, 1]] * 9, "some": [[1, 1, 9, 2]] * 9}
NOTHING = [
    ("fairseq-eval-lm", "all", "all of the split is <pad>"),
    ("fairseq-validate", "all", "all of the split is <pad>"),
    ("fairseq-eval-lm", "some", "has the symbol <pad>; use fairseq-validate"),
]


@pytest.mark.parametrize("command,split,message", NOTHING)
def test_padding_as_text(commands, byte_data, trained, tmp_path, command, split, message):
    """Padding is no target: a split of it has no loss, and within a stream fairseq's scorer mistakes the steps."""
    shutil.copy(byte_data / "dict.txt", tmp_path)
    builder = indexed_dataset.make_builder(str(tmp_path / f"{split}.bin"), "mmap", vocab_size=300)
    for line in PADDING[split]:
        builder.add_item(torch.tensor(line))
    builder.finalize(str(tmp_path / f"{split}.idx"))
    subset = ["--valid-subset" if command == "fairseq-validate" else "--gen-subset", split]
    refused(commands.run(command, tmp_path, *TASK, "--path", trained / "checkpoint_last.pt", *subset), message)


def test_validation_without_task(commands, byte_data, trained):
    arguments = ["--user-dir", PLUGIN, "--path", trained / "checkpoint_last.pt"]
    refused(commands.run("fairseq-validate", byte_data, *arguments), "--task is missing; give one")


def test_evaluation_without_its_task(commands, byte_data, trained):
    """fairseq's default task, language_modeling, gives another loss: the log says why."""
    path = ["--path", trained / "checkpoint_last.pt", "--sample-break-mode", "eos"]
    result = commands.run("fairseq-eval-lm", byte_data, "--user-dir", PLUGIN, "--cpu", *path)
    assert result.status == 0, result.errors
    assert [line for line in result.out if "trained with --task streaming_lm" in line]
    result = commands.run("fairseq-eval-lm", byte_data, *TASK, *path[:2])
    assert not [line for line in result.out if "trained with --task" in line]


OWN = [
    (["preprocess-bytes", "--text", "nowhere", "--destdir", "{new}"], "--text nowhere: No such file"),
    (["preprocess-bytes", "--text", "{folder}", "--destdir", "{new}"], "--text .*: Is a directory"),
    (["preprocess-bytes", "--text", "{text}", "--destdir", "{text}"], "--destdir .*text is a file"),
    (["preprocess-bytes", "--text", "{text}", "--destdir", "{text}/below"], "--destdir .*text is a file"),
    (["preprocess-bytes", "--text", "{text}"], "required: --destdir"),
    (["synthetic-tasks", "copy", "--out", "{text}"], "--out .*text is a file"),
    (["synthetic-tasks", "nosuch", "--out", "{new}"], "nosuch"),
    (["score", "--gen", "{latin}"], "latin: is not UTF-8 text"),
    (["score", "--sys", "{latin}", "--ref", "{text}"], "latin: is not UTF-8 text"),
    (["score", "--gen", "nowhere"], "nowhere: No such file"),
    (["plot", "--curves", "{latin}", "--out", "{new}.png"], "latin: is not UTF-8 text"),
    (["plot", "--layer-weights", "{text}", "--out", "{new}.png"], "text: not a checkpoint"),
    (["plot", "--layer-weights", "{folder}", "--out", "{new}.png"], ": Is a directory"),
    (["plot", "--layer-weights", "{half}", "--out", "{new}.png"], "half: is truncated or corrupt"),
    (["plot", "--layer-weights", "{model}", "--out", "{new}/x.png"], "--out .*its folder does not exist"),
    (["plot", "--layer-weights", "{model}", "--out", "{new}.xyz"], "--out .*give a name that ends with .png"),
    (["plot", "--layer-weights", "{model}", "--out", "{folder}"], "--out .*: is a folder"),
    (["plot", "--attention", "{text}", "--data", "{data}", "--out", "{new}.png"], "text: not a checkpoint"),
    (["plot", "--persistent-use", "{model}", "--data", "{data}", "--out", "{new}.png"], "has no persistent vectors"),
    (["plot", "--position-accuracy", "{model}", "--data", "{data}", "--out", "{new}.png"], "not trained with --labels"),
    (
        ["plot", "--attention-map", "{model}", "--prompt", "a", "--layer", "3", "--out", "{new}.png"],
        "has layers 1 to 2",
    ),
    (
        ["plot", "--context-perplexity", "{model}", "--data", "{data}", "--context", "512", "--out", "{new}.png"],
        "--context 512: the split has only 400 tokens; give 128 or less",
    ),
    (["average-checkpoints", "--inputs", "{model}", "--output", "{folder}"], "--output .*: is a folder"),
    (["average-checkpoints", "--inputs", "{model}", "--output", "{text}/x.pt"], "--output .*its folder does not exist"),
    (["average-checkpoints", "--inputs", "{half}", "--output", "{new}.pt"], "half: is truncated or corrupt"),
    (["evaluate-labels", "{data}", "--path", "nowhere.pt"], "nowhere.pt: no such file"),
    (["evaluate-labels", "{data}", "--path", "{model}"], "--labels"),
    (["import-original", "{model}", "--dict", "{latin}", "--out", "{new}.pt"], "checkpoint_last.pt"),
    (["benchmark", "train", "--device", "meta"], "--device meta: unknown; give cpu or cuda"),
    (["benchmark", "decode", "--layers", "0"], "--layers 0: give 1 or more"),
    (["rl", "evaluate", "--path", "{half}"], "half: is truncated or corrupt"),
    (["rl", "train", "--out", "{text}"], "--out .*text is a file"),
    (["rl", "plot", "A={folder}", "--out", "{new}.png"], "contains no log.jsonl"),
]


@pytest.mark.parametrize("arguments,message", OWN, ids=lambda value: " ".join(value) if isinstance(value, list) else "")
def test_own_commands(commands, byte_data, trained, tmp_path, arguments, message):
    model = trained / "checkpoint_last.pt"
    names = {name: tmp_path / name for name in ("text", "latin", "half", "new", "folder")}
    names["text"].write_text("some text\n")
    names["latin"].write_bytes("größer\n".encode("latin-1"))
    names["half"].write_bytes(model.read_bytes()[:5000])
    names["folder"].mkdir()
    before = sorted(path.name for path in tmp_path.iterdir())
    arguments = [argument.format(model=model, data=byte_data, **names) for argument in arguments]
    refused(commands.run("fb-fairseq", *arguments), message)
    assert sorted(path.name for path in tmp_path.iterdir()) == before, "nothing is written"


def test_number_of_streams_in_evaluation(commands, byte_data, trained, tmp_path):
    """One rule: ``--batch-size`` of ``fairseq-validate`` and ``fairseq-eval-lm`` is ``--valid-streams``, and so is
    ``--batch-size-valid`` in training. ``fairseq-validate`` needs none of them: the checkpoint has its own."""
    path = ["--path", trained / "checkpoint_last.pt"]
    for command in ("fairseq-validate", "fairseq-eval-lm"):
        results = {}
        for option in ("--batch-size 2", "--valid-streams 2", "--valid-streams 3", ""):
            result = commands.run(command, byte_data, *TASK, *path, *option.split(), "--tokens-per-sample", 7)
            assert result.status == 0, result.errors
            lines = [line for line in result.out if "valid on" in line or "Loss (base 2)" in line]
            results[option] = re.search(r"(total_bits|Loss \(base 2\):) ([\d.]+)", lines[-1])[2]
        assert results["--batch-size 2"] == results["--valid-streams 2"] != results["--valid-streams 3"]
        if command == "fairseq-validate":
            assert results[""] == results["--valid-streams 3"], "as the model was trained"
    losses = {}
    for option in ("--batch-size-valid", "--valid-streams"):
        values = {**TINY_MODEL, **TRAINING, "valid_streams": None, "max_update": 2, "no_save": True}
        result = commands.run("fairseq-train", byte_data, *options(values), "--user-dir", PLUGIN, option, 2)
        assert result.status == 0, result.errors
        losses[option] = [
            re.search(r'"valid_total_bits": ([\d.]+)', line)[1] for line in result.out if "| valid |" in line
        ]
    assert losses["--batch-size-valid"] == losses["--valid-streams"] != []


def test_two_runs_in_one_folder(commands, byte_data, tmp_path):
    """The second is refused as long as the first runs, and touches nothing."""
    holder = (
        "import sys, fb_fairseq.files as f; f.lock_folder('--save-dir', sys.argv[1]); print(1, flush=True); input()"
    )
    pipes = dict(stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=REPOSITORY)
    values = {**TINY_MODEL, **TRAINING, "max_update": 4, "save_dir": tmp_path / "ck", "disable_validation": True}
    arguments = [byte_data, *options(values), "--user-dir", PLUGIN]
    with subprocess.Popen([sys.executable, "-c", holder, str(tmp_path / "ck")], **pipes) as first:
        first.stdout.readline()
        refused(
            commands.run("fairseq-train", *arguments),
            rf"--save-dir .*ck: another run is writing.*process {first.pid} on",
        )
        assert [path.name for path in (tmp_path / "ck").iterdir()] == [".lock"]
        first.kill()
    assert commands.run("fairseq-train", *arguments).status == 0


def test_input_of_another_encoding(commands, byte_data, trained, tmp_path):
    (tmp_path / "latin").write_bytes("größer\n".encode("latin-1"))
    arguments = ["--path", trained / "checkpoint_last.pt", "--input", tmp_path / "latin"]
    refused(commands.run("fairseq-interactive", byte_data, *TASK, *arguments), "not UTF-8 text")


def test_rows_of_several_lines_stay_one(commands, tmp_path):
    """A name with a line break does not make two lines of the message."""
    refused(commands.run("fb-fairseq", "score", "--gen", tmp_path / "a\nb"), r"a\\nb: No such file")


WRITERS = [
    ["fb-fairseq", "preprocess-bytes", "--text", "{text}", "--destdir", "{out}"],
    ["fb-fairseq", "average-checkpoints", "--inputs", "{model}", "--output", "{out}"],
    ["fb-fairseq", "plot", "--layer-weights", "{model}", "--out", "{out}.png"],
    ["fb-fairseq", "synthetic-tasks", "copy", "--out", "{out}", "--train", "500", "--valid", "20", "--test", "20"],
    ["fb-fairseq", "rl", "train", "--small", "--cpu", "--frames", "64", "--out", "{out}"],
]


@pytest.mark.parametrize("argv", WRITERS, ids=lambda argv: argv[1])
def test_full_disk(commands, trained, tmp_path, argv):
    """No file may exceed 3,000 bytes: one line, and neither half a file nor a temporary one is left."""
    names = {"text": tmp_path / "text", "out": tmp_path / "out", "model": trained / "checkpoint_last.pt"}
    names["text"].write_bytes(b"some text " * 2000)
    result = commands.run(*[argument.format(**names) for argument in argv], limit=3000)
    assert result.status == 2 and "File too large" in result.errors[-1], result.errors[-3:]
    left = [path for path in tmp_path.rglob("*") if path.is_file() and path.name not in ("text", ".lock", "log.jsonl")]
    assert not left


def test_full_disk_in_training(commands, byte_data, tmp_path):
    values = {**TINY_MODEL, **TRAINING, "max_update": 4, "save_dir": tmp_path / "ck", "disable_validation": True}
    result = commands.run("fairseq-train", byte_data, *options(values), "--user-dir", PLUGIN, limit=30_000)
    assert result.status == 2 and "File too large" in result.errors[-1], result.errors[-3:]
    assert not list(tmp_path.glob("ck/checkpoint*"))


@pytest.mark.parametrize("name", ["train.bin", "train.idx", "valid.idx", "dict.txt"])
def test_damaged_data(commands, byte_data, tmp_path, name):
    data = tmp_path / "data"
    shutil.copytree(byte_data, data)
    content = (data / name).read_bytes()
    (data / name).write_bytes(content[: len(content) // 2 + 1])
    values = {**TINY_MODEL, **TRAINING, "max_update": 4, "save_dir": tmp_path / "ck"}
    expected = {"dict.txt": "dict.txt: |train.bin: contains the token"}.get(name, name)
    refused(commands.run("fairseq-train", data, *options(values), "--user-dir", PLUGIN), expected)


@pytest.mark.parametrize(
    "content,message",
    [
        (b"a 1\nb 2\n", "valid.bin: contains the token .*, but the dictionary has only 6 symbols"),
        (b"", "valid.bin: contains the token .*, but the dictionary has only 4 symbols"),
        (b"a 1\nb\n", "dict.txt: Incorrect dictionary format"),
        (b"a 1\na 1\n", "dict.txt: Duplicate word"),
        (b"\xff\xfe 1\n", "dict.txt: Incorrect encoding"),
    ],
)
def test_wrong_dictionaries(commands, byte_data, tmp_path, content, message):
    data = tmp_path / "data"
    shutil.copytree(byte_data, data, ignore=shutil.ignore_patterns("checksums.json"))
    (data / "dict.txt").write_bytes(content)
    values = {**TINY_MODEL, **TRAINING, "max_update": 4, "save_dir": tmp_path / "ck"}
    refused(commands.run("fairseq-train", data, *options(values), "--user-dir", PLUGIN), message)


def test_memory_of_another_shape(commands, byte_data, tmp_path):
    """Edited by hand, with correct checksums."""
    values = {**TINY_MODEL, **TRAINING, "save_dir": tmp_path, "disable_validation": True}
    arguments = [byte_data, *options(values), "--user-dir", PLUGIN]
    assert commands.run("fairseq-train", *arguments, "--max-update", 4).status == 0
    (path,) = tmp_path.glob("stream_memory.*")
    content = torch.load(path, weights_only=True)
    content["states"] = [(ids, memory[..., :3]) for ids, memory in content["states"]]
    torch.save(content, path)
    refused(commands.run("fairseq-train", *arguments, "--max-update", 8), "the streams' memory has .* width 3")
