"""``--print`` of the recipes: the commands that a person would type, and nothing else happens."""

import json
import os
import re
import subprocess
import sys

import pytest

from tests.cli.recipes import SCRIPTS, printed_commands, recipe
from tests.cli.test_recipes import ODD_NAME
from tests.conftest import REPOSITORY

PRINTING = [script for script in SCRIPTS if script != "benchmark/gpu.sh"]
RESULTS = re.findall(
    r"^```bash\n([^`]*bash examples/(?!.*quickstart)[^`]*)^```$",
    (REPOSITORY / "examples/results.md").read_text(encoding="utf-8"),
    re.MULTILINE,
)
PRINT = """bash() {
    case $1 in
        *sweep.sh) command bash "$1" "$2" --print "${@:3}" ;;
        *) command bash "$1" --print "${@:2}" ;;
    esac
}
"""
ENWIK8, WALK = "language_modeling/enwik8/run.sh", "synthetic_tasks/random_walk.sh"


def printed(script, *arguments, venv="/nowhere/venv", folder="/"):
    """What a script prints with ``--print``, which must be valid code for bash."""
    environment = {**os.environ, "FB_FAIRSEQ_VENV": str(venv)}
    command = ["bash", str(REPOSITORY / "examples" / script), *map(str, arguments), "--print"]
    if "--" in command:
        command.insert(command.index("--"), command.pop())
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, cwd=folder)
    assert done.returncode == 0 and not done.stderr, done.stdout[-2000:] + done.stderr[-2000:]
    subprocess.run(["bash", "-n"], input=done.stdout, text=True, check=True)
    return done.stdout


def programs(text):
    """The programs of the printed commands, in order."""
    return [command[0] for command in printed_commands(text)]


@pytest.mark.parametrize("script", PRINTING)
@pytest.mark.parametrize("scale", [[], ["--small"]], ids=["full", "small"])
def test_scripts(tmp_path, script, scale):
    """Without DATA and an environment: both are named, and nothing is written."""
    arguments = ["blocked_random_walk"] if script.endswith("sweep.sh") else []
    if script == "quickstart.sh":
        scale = []
    text = printed(script, *arguments, *scale, "--out", tmp_path / "out", folder=tmp_path)
    assert not list(tmp_path.iterdir())
    training = "fairseq-train" if "reinforcement" not in script else "python -m fb_fairseq rl train"
    assert f"\n{training} " in text and f"examples/{script}" in text.splitlines()[0]
    assert "(This environment does not exist yet." in text and text.count("PYTHONPATH") == 1, "one head"
    needs_data = "language" in script or "transl" in script or "summ" in script
    assert ("DATA" in text.replace("of DATA", "")) == (needs_data or ("memory_composition" in script and not scale))
    assert not [line for line in text.splitlines() if len(line) > 120 and " -" in line[5:].replace("tee -a", "")]


@pytest.mark.parametrize("script", PRINTING)
def test_help(script):
    done = recipe(script, "--help")
    assert done.returncode == 0 and "--print" in done.stdout


def test_options():
    """What the options choose is printed: models, depths, updates, and options of fairseq-train."""
    arguments = ["--small", "my text.gz", "--models", "relative_transformer_lm N0", "--layers", "1 3", "--updates", 7]
    text = printed("language_modeling/persistent_memory/run.sh", *arguments, "--seed", 5, "--", "--fp16")
    headings = [line for line in text.splitlines() if line.startswith("# train ")]
    models = [f"{model}-{layers}-seed5" for layers in (1, 3) for model in ("relative_transformer_lm", "N0")]
    assert headings == [f"# train {model}" for model in models]
    trainings = [command for command in printed_commands(text) if command[0] == "fairseq-train"]
    assert len(trainings) == 8, "and fine-tunings"
    for command in trainings:
        assert "--fp16" in command and command[command.index("--seed") + 1] == "5"
    assert [command[command.index("--max-update") + 1] for command in trainings[:2]] == ["7", "150"]
    assert "my text.gz' >runs/persistent_memory-small/data/text" in text
    assert programs(text)[-4:] == ["python"] * 4, "curves, results by depth, comparison, and the figure"
    assert "# On this machine, training runs as 1 process on the CPU.\n" in text, "torch is not installed"


@pytest.mark.parametrize(
    "script,model,rates",
    [
        (ENWIK8, "relative_transformer_lm", ["0.004", "0.0004"]),
        ("language_modeling/wikitext103/ablation.sh", "transformer-post", ["0.004"]),
        ("language_modeling/wikitext103/end_of_line.sh", "without-eos with-eos", ["0.004", "0.0004", "0.0004"]),
    ],
)
def test_learning_rate(script, model, rates):
    """That of the command line replaces the recipe's; fine-tuning has a tenth of it."""
    text = printed(script, "--small", "--layers", 1, "--models", model, "--lr", "0.004")
    trainings = [command for command in printed_commands(text) if command[0] == "fairseq-train"]
    assert [command[command.index("--lr") + 1] for command in trainings] == rates
    assert all(command.count("--lr") == 1 for command in trainings)


def test_bad_learning_rate():
    for arguments, message in (
        (["--lr", "0"], "error: --lr 0: give a number above 0, such as 0.002\n"),
        (["--lr", "0.0e-3"], "error: --lr 0.0e-3: give a number above 0, such as 0.002\n"),
        (["--lr", "fast"], "error: --lr fast: give a number above 0, such as 0.002\n"),
        (["--", "--lr", "1"], "error: --lr: give it before the --; fine-tuning then has a tenth of it\n"),
        (["--", "--fp16", "--lr=1"], "error: --lr: give it before the --; fine-tuning then has a tenth of it\n"),
    ):
        done = recipe(ENWIK8, "--print", *arguments)
        assert done.returncode == 1 and done.stderr == message


def test_seeds_and_spans(tmp_path):
    """A sweep prints the commands of all runs; LSTMs have one span."""
    models = "relative_transformer_lm streaming_lstm_lm"
    sweep = ["copy", "--seeds", "1 2", "--spans", "4 8", "--depths", "1 2", "--models", models, "--jobs", 3]
    text = printed("synthetic_tasks/sweep.sh", *sweep, "--out", tmp_path)
    assert programs(text).count("fairseq-train") == 2 * 2 * 2 + 2 * 2
    assert text.count("python -m fb_fairseq evaluate-labels") == 12
    own = ["--seeds", "2 1 2", "--span", 4, "--layers", 3, "--jobs", 2, "--models", models, "--length", 7]
    text = printed("synthetic_tasks/copy.sh", *own, "--out", tmp_path, "--", "--fp16")
    assert re.findall("# == (.*)", text) == ["span4-layers3-seed2", "span4-layers3-seed1"]
    trainings = [command for command in printed_commands(text) if command[0] == "fairseq-train"]
    assert len(trainings) == 4 and all("--fp16" in command for command in trainings)
    assert text.count("--length 8 --train 20000 --valid 200 --test 500 --length 7") == 2
    assert "mkdir -p runs/copy-full/seed1\n" in printed("synthetic_tasks/copy.sh", "--seeds", "1 2", "--full")
    agents = printed("reinforcement_learning/maze.sh", "--seeds", "1 2", "--agents", "lstm feedback", "--jobs", 2)
    assert re.findall("# train and evaluate (.*)", agents) == [
        f"{agent}-seed{seed}" for seed in (1, 2) for agent in ("lstm", "feedback")
    ]
    agents = printed("reinforcement_learning/maze.sh", "--full", "--agents", "lstm")
    assert re.findall("# train and evaluate (.*)", agents) == [f"lstm-seed{seed}" for seed in range(1, 11)]


def test_curriculum():
    """Each model goes through all stages, and so do the learning curves."""
    models = ["--models", "streaming_lstm_lm relative_transformer_lm"]
    text = printed("synthetic_tasks/counting.sh", "--curriculum", "5 10", *models)
    trainings = [command for command in printed_commands(text) if command[0] == "fairseq-train"]
    starts = [command[command.index("--finetune-from-model") + 1 :][:1] for command in trainings[1:3] + trainings[4:]]
    run = "runs/counting-small-seed1"
    assert [start for (start,) in starts] == [
        f"{run}/longest-{stage}/{model}/checkpoint_best.pt"
        for model in ("streaming_lstm_lm", "relative_transformer_lm")
        for stage in (5, 10)
    ]
    assert "--finetune-from-model" not in trainings[0] + trainings[3] and text.count("--srcdict") == 2
    (curves,) = re.findall("--curves (.*) --metric", text.replace("\\\n    ", ""))
    assert curves.split() == [
        f"{model}={run}/{folder}{model}.log"
        for model in models[1].split()
        for folder in ("longest-5/", "longest-10/", "")
    ]


def test_steps(tmp_path):
    """Those of --steps, whether or not the ones before have been run."""
    translation = "translation/iwslt14_de_en/run.sh"
    text = printed(translation, "--small", "--layers", 1, "--models", "feedback", "--steps", "tune generate score")
    assert programs(text)[3:] == ["fairseq-generate", "python"] * 4 + ["python"] and "--lenpen 1.4" in text
    assert not re.search("fairseq-train|preprocess", text)
    text = printed(translation, "--small", "--layers", 1, "--models", "transformer", tmp_path)
    raw = "runs/iwslt14_de_en-small/data/test.raw.en"
    text = text.replace(" \\\n    ", " ")  # lines are broken where the folder's name is long
    assert f"--raw-ref {raw}" in text and f"gzip -dc {tmp_path}/test_2016_flickr.en.gz >{raw}" in text


def test_second_machine():
    nodes = ["--nodes", 2, "--node-rank", 1, "--rendezvous", "host:2000", "--models", "feedback_transformer_lm"]
    text = printed(ENWIK8, "--small", *nodes)
    assert "# On this machine, training runs as 1 process on the CPU, on each of 2 machines.\n" in text
    commands = [command for command in printed_commands(text) if command[0] == "python"]
    assert len(commands) == 2 * 2 and all("torch.distributed.run" in command for command in commands)
    assert [command[command.index("--master-port") + 1] for command in commands[:2]] == ["2000", "2001"]


def test_bad_options():
    """Options are checked as without --print."""
    done = recipe(ENWIK8, "--print", "--layers", "2")
    assert done.returncode == 1 and done.stderr == "error: --layers: only with --small\n"


RECORDER = f"""#!{sys.executable}
import json, os, sys
if sys.argv[1] == "-c":  # how many GPUs
    print(3)
else:
    with open(os.environ["RECORD"], "a") as file:
        print(json.dumps([os.getcwd(), os.path.basename(sys.argv[0]), *sys.argv[1:]]), file=file)
"""


def test_quoting(tmp_path):
    """Bash reads the printed commands with the names, and the options after ``--``, as they were given."""
    folder = tmp_path / ODD_NAME
    (folder / "venv/bin").mkdir(parents=True)
    for program in ("python", "fairseq-preprocess", "fairseq-train", "fairseq-eval-lm", "fairseq-interactive"):
        (folder / "venv/bin" / program).write_text(RECORDER)
        (folder / "venv/bin" / program).chmod(0o755)
    for split in ("train", "valid", "test"):
        (folder / f"ptb.{split}.txt").write_text("text\n")
    own = ["--restore-file", "it's $HOME", ""]
    out = folder / "o'"
    arguments = ["--small", folder, "--models", "layer0", "--update-freq", 2, "--out", out]
    with pytest.raises(AssertionError, match="64 streams cannot be divided among 3 processes x 2"):
        printed("language_modeling/char_ptb/run.sh", *arguments, venv=folder / "venv")
    (folder / "venv/bin/python").write_text(RECORDER.replace("print(3)", "print(2)"))
    text = printed("language_modeling/char_ptb/run.sh", *arguments, "--", *own, venv=folder / "venv")
    assert "# On this machine, training runs as 2 processes, one per GPU.\n" in text and not out.exists()
    record = tmp_path / "record"
    subprocess.run(
        ["bash", "-e"], input=text, text=True, check=True, env={**os.environ, "RECORD": str(record)}, cwd="/"
    )
    calls = [json.loads(line) for line in record.read_text().splitlines()]
    preprocess = next(call for call in calls if call[1] == "fairseq-preprocess")
    assert preprocess[:4] == [f"{out}/data", "fairseq-preprocess", "--trainpref", "train.chars"], "names without commas"
    assert preprocess[preprocess.index("--destdir") + 1] == f"{out}/data"
    train = next(call for call in calls if call[1] == "fairseq-train")
    assert train[0] == str(REPOSITORY) and train[2] == f"{out}/data" and train[-2:] == ["--save-dir", f"{out}/layer0-2"]
    assert train[train.index("--restore-file") :][:3] == own
    assert train[train.index("--batch-size") + 1] == "16", "64 streams / 2 GPUs / --update-freq 2"
    assert (out / "data/train.words").read_text() == "text\n"
    plot, compare = calls[-2:]
    assert compare[1:] == ["python", "-m", "fb_fairseq", "compare", str(out)]
    assert f"layer0-2={out}/layer0-2.log" in plot


@pytest.mark.parametrize(
    "block", RESULTS, ids=lambda block: re.search(r"examples/(?:language_modeling/)?(\w+)", block)[1]
)
def test_commands_of_results(block):
    """The recipes take the commands of the results page, none of which trains into the folder of another model."""
    block = PRINT + block.replace('"1 2 3', '"1').replace(" --jobs 2", "")
    command, environment = ["bash", "-euc", block], {**os.environ, "FB_FAIRSEQ_GPUS": "0"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, cwd=REPOSITORY)
    assert done.returncode == 0 and not done.stderr, done.stderr
    commands = printed_commands(done.stdout, ("fairseq-train", "python -m fb_fairseq rl train"))
    folders = [command[command.index("--save-dir" if "--save-dir" in command else "--out") + 1] for command in commands]
    assert folders and len(set(folders)) == len(folders)
