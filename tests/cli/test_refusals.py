"""Mistakes in whole commands: one line on standard error that names the option or file, status 2, nothing written.

``$name`` in a command stands for one of ``files``. Of fairseq's commands a case has what follows the usual arguments;
the data come first, unless they are the usual ones.
"""

import re
import shlex
import shutil
from string import Template

import pytest
import torch
from fairseq.data import indexed_dataset

from fb_fairseq.commands import main, preprocess_bytes
from tests.cli.fairseq_commands import PLUGIN, options, train, training_arguments
from tests.cli.own_commands import refused
from tests.cli.parallel_text import TINY

STREAMS = ["--user-dir", PLUGIN, "--task", "streaming_lm", "--cpu"]
PAIRS = {**TINY, "label_smoothing": None, "criterion": "cross_entropy", "max_update": 2}
LANGUAGE_MODEL = [*training_arguments("", "$new", max_update=4)[1:], "--user-dir", PLUGIN]
ALL_ATTENTION = [*training_arguments("", "$new", arch="all_attention_lm")[1:], "--user-dir", PLUGIN]
# The usual arguments of fairseq's commands: the data, and the others.
USUAL = {
    "train": ("$bytes", LANGUAGE_MODEL),
    "train all-attention": ("$bytes", ALL_ATTENTION),
    "train a translator": ("$pairs", ["--save-dir", "$new", *options(PAIRS), "--user-dir", PLUGIN]),
    "train on streams": ("$bytes", STREAMS),
    **{name: ("$bytes", [*STREAMS, "--path", "$model"]) for name in ("eval-lm", "validate", "generate", "interactive")},
    "eval-lm without a model": ("$bytes", STREAMS),
    "validate without a task": ("$bytes", ["--user-dir", PLUGIN, "--path", "$model"]),
    "generate translations": ("$pairs", ["--user-dir", PLUGIN, "--path", "$translator", "--cpu"]),
}
WITHOUT_OPTIMIZER = [*options({"max_update": 2, "batch_size": 4, "lr": 0.1, "cpu": True}), "--user-dir", PLUGIN]
USUAL["train without a task"] = ("$bytes", [*WITHOUT_OPTIMIZER, "--save-dir", "$new"])
USUAL["train without an optimizer"] = ("$bytes", [*USUAL["train without a task"][1], *STREAMS])
LM = "--arch feedback_transformer_lm"
SPANS = "--adaptive-span --adaptive-span-loss 0.1"
OVERRIDES = "--model-overrides \"{'atention_span': 4}\""
ANOTHER_SIZE = "dict.txt: .*260 symbols.*262.*--srcdict"
FAIRSEQ = [
    ("train without a task", f"{LM} --optimizer adam", "--task: not one for this --arch .*give --task streaming_lm"),
    ("train without a task", f"{LM} --tokens-per-sample 9", ": --tokens-per-sample 9; give --task streaming_lm"),
    (
        "train without an optimizer",
        f"{LM} --tokens-per-sample 9 --valid-subset valid,valid1",
        "--optimizer is missing; give one, such as",
    ),
    ("train", "--lr ''", "--lr: is empty; give a number"),
    ("train", "--save-dir '$new/$${x}'", r"\$\{x\}: fairseq replaces this in a value"),
    ("train", "--optimizer clipped_adagrad --adagrad-clip nan", "--adagrad-clip nan: give 0 or more"),
    ("train", "--optimizer clipped_adagrad --lr -1", "--lr -1.0: give 0 or more"),
    ("train", "--lr abc", "argument --lr: 'abc' is not right; give a number, or several with commas"),
    ("train", "--dropout 1.5", "--dropout 1.5: must be a probability below 1"),
    ("train", "--adam-betas \"__import__('os').getpid()\"", "is code, or not a valid value; .*--adam-betas"),
    ("train", "--arch feedback_transformer_ml", "choice: 'feedback_transformer_ml'; --help lists all"),
    ("train", "--batch-size-valid 7", "--batch-size-valid 7, --valid-streams 3: both"),
    ("train", "--batch-size 4000", "--batch-size.*4000 streams.*3001 tokens"),
    ("train", "--sample-break-mode eos", "--sample-break-mode eos.*leave it out"),
    ("train", "--sentence-avg", "--sentence-avg: --criterion lm_loss averages over tokens"),
    ("train", "--finetune-from-model nowhere.pt", "--finetune-from-model nowhere.pt does not exist"),
    ("train", "--save-dir $text/below", "--save-dir .*/below: .*/text is a file; give the name of a folder"),
    ("train", "--save-dir /proc/below", "/proc/below: No such file or directory"),
    ("train", "--train-subset nowhere", "nowhere: the split is missing"),
    ("train", "--decoder-embed-dim 1000000", "out of memory; use smaller sizes"),
    ("train", "--lr 1e10", "the gradients are NaN or infinite; try a lower --lr"),
    ("train", "--distributed-world-size 9", "--distributed-world-size 9: .*torchrun --nproc-per-node 9"),
    ("train", "--profile", "PyTorch finds no GPU that it can use; .*--profile"),
    ("train", "nowhere", "nowhere/dict.txt: no such file; give a folder that fairseq-preprocess or fb-fairseq"),
    ("train", "$empty", "empty/train: the split is empty.*--train-subset"),
    ("train", "--decoder-layers 3 --restore-file $model", "checkpoint_last.pt: has the parameters of another model"),
    ("train", "$more_words --restore-file $model", ANOTHER_SIZE),
    ("train", f"{SPANS} --criterion cross_entropy", "--criterion: another one than lm_loss ignores --adaptive-span-l"),
    ("train all-attention", "--persistent-memory-size=-1", "--persistent-memory-size -1: must be a number"),
    ("train all-attention", "--optimizer clipped_adagrad --adagrad-clip=-1", "--adagrad-clip -1.0: give 0 or more"),
    ("train all-attention", "--decoder-ffn-embed-dim 8", "unrecognized arguments: --decoder-ffn-embed-dim"),
    ("train on streams", "", "--arch is missing; give one"),
    ("train on streams", "--arch transformer_lm --batch-size 2", "transformer_lm carries no memory.*--task lang"),
    ("train a translator", "--source-lang de --target-lang xx", "dict.xx.txt: No such file"),
    ("train a translator", "--train-subset nowhere", "the split nowhere is missing"),
    ("eval-lm", "--path nowhere.pt", "Model file not found: nowhere.pt; give a checkpoint"),
    ("eval-lm without a model", "", "--path is missing; give a checkpoint"),
    ("eval-lm", "--path $text", "text: not a checkpoint, or one with objects that are not data"),
    ("eval-lm", "--model-overrides \"{'activation_fn': 'gelu'}\"", "trained with --activation-fn relu, not gelu: its"),
    ("eval-lm", "--model-overrides \"{'decoder_layers': 3}\"", "not those of a model with --model-overrides .*layers"),
    ("eval-lm", OVERRIDES, "--model-overrides: .*'atention_span'; leave it out"),
    ("eval-lm", "--context-window 4", "--context-window has no meaning on streams"),
    ("eval-lm", "--num-shards 2 --shard-id 2", "--shard-id 2: shards have the numbers 0 to 1"),
    ("eval-lm", "--remove-bpe", "--remove-bpe, .* words that blocks and streams cut; leave them out"),
    ("eval-lm", "$padding --gen-subset some", "has the symbol <pad>; use fairseq-validate"),
    ("validate without a task", "", "--task is missing; give one"),
    ("generate", "", "--sample-break-mode eos"),
    ("generate translations", "--model-overrides \"{'encoder_layer': 2}\"", "option 'encoder_layer'; leave"),
    ("interactive", "--retain-dropout", "--retain-dropout: this model has dropout in training only"),
    ("interactive", "--input $escape", r"unknown escape \\q.*xHH"),
    ("interactive", "--input $latin", "not UTF-8 text"),
]
OWN = [
    ("preprocess-bytes --text nowhere --destdir $new", "nowhere: No such file"),
    ("preprocess-bytes --trainpref $none --destdir $new", "--trainpref .*/none: the file is empty"),
    ("generate --seed 9223372036854775808", "--seed: 9223372036854775808: give a number from 0 to 9223372036854775807"),
    ("state-tracking train --out $new --seed -1", "--seed -1: give a number from 0 to 9223372036854775807"),
    ("rl train --out $new --seed 9223372036854775808", "--seed 9.*: give 9223372036854775807 or less"),
    ("preprocess-bytes --text $text --split 1e308,1e308,1e308 --destdir $new", "--split .*: must be three numbers"),
    ("preprocess-bytes --text $packed --destdir $new", "--text .*/packed: is compressed; unpack it with unzip"),
    ("preprocess-bytes --text $tiny --split 90,5,5 --destdir $new", "too few"),
    ("preprocess-bytes --text $tiny --split 90,10 --destdir $new", "--split 90,10"),
    ("preprocess-bytes --text $tiny --split nan,5,5 --destdir $new", "--split nan,5,5: must be three numbers"),
    ("preprocess-bytes --trainpref $text --split 8,1,1 --destdir $new", "--split: is of --text; give both"),
    ("preprocess-bytes --text $gen --validpref $text --destdir $new", "give either --trainpref .*, or --text"),
    ("synthetic-tasks copy --out $text", "--out .*text is a file"),
    ("score --gen 'a\nb'", r"a\\nb: No such file"),  # one line, whatever the name
    ("score --gen $part", "1 of 3 hypotheses are missing, the first is D-1; generate all"),
    ("score --gen $gen --raw-ref $text", "3 hypotheses and 1 raw references"),
    ("score --gen $gen --sentences 4", "3 hypotheses, not --sentences 4: generate all"),
    ("score --sys $bpe --ref $bpe", "4 of 6 words are subwords .*--remove-bpe"),
    ("score --gen ''", "give --gen FILE, or --sys FILE and --ref FILE"),
    ("plot --out $new.png", "give one of --curves, --layer-weights-over-training, .* --position-accuracy, or several"),
    ("plot --curves nowhere --out $new.png", "nowhere: no such file"),
    ("plot --curves $log --metric ppl --out $new.png", "log: ppl is not logged"),
    ("plot --curves $text --out $new.png", "text: has no line of a training; give what fairseq-train printed"),
    ("plot --layer-weights $folder --out $new.png", "folder: has no config.json"),
    ("plot --layer-weights $plain --out $new.png", "plain.pt: has none that are learned"),
    ("plot --layer-weights $model --out $new.xyz", "--out .*give a name that ends with .png"),
    ("plot --layer-weights-over-training $log --out $new.png", "log: no layer weights are logged there"),
    ("plot --spans $plain --out $new.png", "plain.pt: its spans are fixed"),
    ("plot --attention $model --prompt a --layer 1 --out $new.png", "--layer: is of --attention-map; give both"),
    ("plot --attention-map $model --data $bytes --out $new.png", "--attention-map .*: give a short text with --prompt"),
    ("plot --attention $model --out $new.png", "--attention .*: give the folder of the binarised text"),
    (
        "plot --position-accuracy $model --data $bytes --out $new.png",
        "--position-acc.*: give a model trained with --labels",
    ),
    ("plot --spans $plain $plain A=$plain A=$model --out $new.png", "--spans: two have the same name"),
    ("average-checkpoints --inputs $model --output $text/x.pt", "--output .*its folder does not exist"),
    ("average-checkpoints --inputs $plain $another --output $new.pt", "the names or shapes of parameters differ;"),
    (
        "average-checkpoints --inputs $run --num-epoch-checkpoints 5 --output $new.pt",
        " 5: .* has 1; give fewer",
    ),
    (
        "average-checkpoints --inputs $run --num-epoch-checkpoints 0 --output $new.pt",
        "--num-epoch-checkpoints 0: must be 1 or more",
    ),
    (
        "average-checkpoints --inputs $run --num-update-checkpoints 0 --output $new.pt",
        "--num-update-checkpoints 0: must be 1 or more",
    ),
    (
        "average-checkpoints --inputs $model --num-epoch-checkpoints 1 --output $new.pt",
        "give one folder with --inputs",
    ),
    ("evaluate-labels $bytes --path $model", "--labels"),
    ("evaluate-labels $pairs --path $translator", "is not a language model of this package"),
    ("evaluate-labels $pairs --path $model --streams 0", "--streams 0: must be 1 or more"),
    ("evaluate-labels $pairs --path $model --context-sequences -1", "--context-sequences -1: must be 0 or more"),
    ("explore $model --max-steps 0", "--max-steps 0: must be 1 or more"),
    ("plot --position-accuracy $model --tokens 0 --out $new.png", "--tokens 0: must be 1 or more"),
    ("plot --position-accuracy $model --context 0 --out $new.png", "--context 0: must be 1 or more"),
    ("generate --path $model --cpu --sampling-topk -1", "--sampling-topk -1: must be 0 or more"),
    ("generate --path $model --cpu --length 0", "--length 0: must be 1 or more"),
    ("generate --path $model --cpu --temperature nan", "--temperature nan: must be 0 or more"),
    ("generate --path $model --cpu --data nowhere", "nowhere/dict.txt is missing; give"),
    ("export $model --to $new --dict $text", "text: is no dictionary of fairseq, in which each line is"),
    ("benchmark train --device meta", "argument --device: invalid choice: 'meta'"),
    ("quickstart --epochs 3 --out $new", "error: .*--epochs"),
    ("rl plot A=$folder --out $new.png", "contains no log.jsonl"),
]
NEEDED = {"export": "transformers", "plot": "matplotlib"}


@pytest.fixture(scope="module")
def files(byte_data, parallel_data, translation_models, tmp_path_factory):
    """What ``$name`` stands for."""
    folder = tmp_path_factory.mktemp("files")
    train(byte_data, folder / "run", max_epoch=1, disable_validation=True)
    model = folder / "run/checkpoint_last.pt"
    found = dict(bytes=byte_data, pairs=parallel_data, run=folder / "run", model=model, new=folder / "new")
    found.update(
        translator=translation_models / "feedback/checkpoint_last.pt",
        plain=folder / "plain.pt",
        another=folder / "another.pt",
    )
    torch.save({"model": {}, "cfg": {"model": {"arch": "feedback_transformer_lm"}}}, found["plain"])
    torch.save({"model": {"x": torch.zeros(1)}, "cfg": {"model": {}}}, found["another"])
    lines = [[f"T-{n}\ta b c", f"D-{n}\t-0.1\ta b c"] for n in range(3)]
    texts = {
        "text": b"some text\n",
        "tiny": b"abc",
        "none": b"",
        "latin": "größer\n".encode("latin-1"),
        "escape": b"a\\q\n",
        "packed": b"PK\x03\x04 and more",
        "bpe": b"c@@ at s@@\n",
        "gen": "\n".join(sum(lines, [])).encode(),
        "part": "\n".join(lines[0] + lines[2]).encode(),
        "log": b'{"loss": "3", "num_updates": "1"}\n{"valid_loss": "3", "valid_num_updates": "1"}\n',
    }
    for name, content in texts.items():
        (folder / name).write_bytes(content)
        found[name] = folder / name
    (folder / "folder").mkdir()
    return {**found, "folder": folder / "folder", **damaged_data(byte_data, folder)}


def damaged_data(byte_data, folder):
    """Copies of the data with something wrong in each."""
    found = {name: folder / name for name in ("more_words", "empty", "padding")}
    for name in found:
        shutil.copytree(byte_data, found[name])
    with open(found["more_words"] / "dict.txt", "a") as file:
        file.write("one 1\ntwo 1\n")
    preprocess_bytes.write_split(str(found["empty"] / "train"), [], preprocess_bytes.byte_dictionary(), False)
    # Within a stream fairseq's scorer mistakes the steps.
    builder = indexed_dataset.make_builder(str(found["padding"] / "some.bin"), "mmap", vocab_size=300)
    for _ in range(9):
        builder.add_item(torch.tensor([1, 1, 9, 2]))
    builder.finalize(str(found["padding"] / "some.idx"))
    return found


def words(line, files):
    """The words of a command, in which ``$name`` is replaced."""
    return [Template(word).substitute(files) for word in shlex.split(line)]


def listing_without_new(files):
    """The files that there are, but for fairseq's description of a NaN; removes the folder of a run that began."""
    found = sorted(path for path in files["folder"].parent.rglob("*") if path.name not in (".lock", "new", "crash.pt"))
    shutil.rmtree(files["new"], ignore_errors=True)
    return found


@pytest.mark.parametrize("command,line,message", FAIRSEQ, ids=lambda value: value[:40])
def test_fairseqs_commands(commands, files, command, line, message):
    if "--profile" in line and torch.cuda.is_available():
        pytest.skip("on a GPU this runs")
    data, usual = USUAL[command]
    data = data if line.startswith("-") or not line else ""
    before = listing_without_new(files)
    arguments = words(f"{data} {shlex.join(map(str, usual))} {line}", files)
    refused(commands.run(f"fairseq-{command.split()[0]}", *arguments), message)
    assert listing_without_new(files) == before and files["text"].read_text() == "some text\n"


@pytest.mark.parametrize("line,message", OWN, ids=lambda value: value[:40])
def test_own_commands(capsys, files, line, message):
    pytest.importorskip(NEEDED.get(line.split()[0], "torch"))
    before = listing_without_new(files)
    try:
        status = main(words(line, files))
    except SystemExit as stop:
        status = stop.code
    (error,) = capsys.readouterr().err.splitlines()
    assert status == 2 and re.match(f"(fb-fairseq {line.split()[0]}[a-z ]*: )?error: ", error), error
    assert re.search(message, error), error
    assert listing_without_new(files) == before, "nothing is written"


WRITERS = [
    "fb-fairseq preprocess-bytes --text $long --destdir $out",
    "fb-fairseq average-checkpoints --inputs $model --output $out",
    "fb-fairseq plot --layer-weights $model --out $out.png",
    "fb-fairseq synthetic-tasks copy --out $out --train 500 --valid 20 --test 20",
    "fb-fairseq rl train --small --cpu --frames 64 --out $out",
]


@pytest.mark.parametrize("line", WRITERS, ids=lambda line: " ".join(line.split()[:2]))
def test_full_disk(commands, files, tmp_path, line):
    """No file may exceed a few thousand bytes: one line, and neither half a file nor a temporary one is left."""
    (tmp_path / "long").write_bytes(b"some text " * 2000)
    result = commands.run(*words(line, {**files, "long": tmp_path / "long", "out": tmp_path / "out"}), limit=3000)
    assert result.status == 2 and "File too large" in result.errors[-1], result.errors[-3:]
    written = ("long", ".lock", ".fb_fairseq-rl", "log.jsonl")
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and path.name not in written]
