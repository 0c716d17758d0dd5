"""``--print`` of the recipes: the commands that a person would type, and nothing else happens."""

import json
import os
import re
import subprocess
import sys

import pytest

from fb_fairseq.errors import UserError
from fb_fairseq.papers.runner.command import names
from tests.cli.odd_names import ODD_NAME
from tests.conftest import REPOSITORY
from tests.papers.runner.printed import commands, printed, values

RESULTS = re.findall(
    r"^```bash\n([^`]*bash examples/(?!.*quickstart)[^`]*)^```$",
    "".join(page.read_text(encoding="utf-8") for page in sorted((REPOSITORY / "examples/results").glob("*.md"))),
    re.MULTILINE,
)
# Writes down a block's calls of scripts, instead of running them.
RECORD_CALLS = """bash() { printf '%s\x1f' "$@"; echo; }
"""


def programs(text):
    """The programs of the printed commands, in order."""
    return [command[0] for command in commands(text)]


@pytest.mark.parametrize("name", names())
@pytest.mark.parametrize("scale", [[], ["--small"]], ids=["full", "small"])
def test_recipes(tmp_path, monkeypatch, name, scale):
    """Without DATA and an environment: both are named, the commands are valid for bash, and nothing is written."""
    monkeypatch.setenv("FB_FAIRSEQ_VENV", "/nowhere/venv")
    monkeypatch.setenv("FB_FAIRSEQ_ROOT", str(REPOSITORY))
    monkeypatch.chdir(tmp_path)
    text = printed(name, *([] if name == "quickstart" else scale), "--out", tmp_path / "out")
    assert not list(tmp_path.iterdir())
    subprocess.run(["bash", "-n"], input=text, text=True, check=True)
    training = "fairseq-train"
    if name in ("corridor", "maze", "maze_easy", "water_maze"):
        training = "python -m fb_fairseq rl train"
    elif name in ("word_problem", "recall", "modular_arithmetic"):
        training = "python -m fb_fairseq state-tracking train"
    assert f"\n{training} " in text and text.startswith(f"# What the recipe {name} runs,\n")
    assert "(This environment does not exist yet." in text and text.count("PYTHONPATH") == 1, "one head"
    needs_data = "fairseq-interactive" in text or "fairseq-generate" in text
    assert ("DATA" in text.replace("of DATA", "")) == (needs_data or (name == "memory_composition" and not scale))
    assert not [line for line in text.splitlines() if len(line) > 120 and " -" in line[5:].replace("tee -a", "")]


def test_an_installed_package_prints_its_own_programs(tmp_path, monkeypatch):
    """Without the scripts' variables: in the current folder, with the programs beside this Python."""
    monkeypatch.delenv("FB_FAIRSEQ_ROOT", raising=False)
    monkeypatch.chdir(tmp_path)
    text = printed("random_walk")
    assert f"\ncd {tmp_path}\nexport PATH=" in text and "PYTHONPATH" not in text
    assert values(text, "--user-dir")[0] in ("fb_fairseq", str(REPOSITORY / "fb_fairseq"))
    assert values(text, "--save-dir")[0] == "runs/random_walk-small-seed1/feedback_transformer_lm"


def test_options():
    """What the options choose is printed: models, depths, updates, and options of fairseq-train."""
    arguments = ["--small", "my text.gz", "--models", "relative_transformer_lm N0", "--layers", "1 3", "--updates", 7]
    text = printed("persistent_memory", *arguments, "--seed", 5, "--", "--fp16")
    headings = [line for line in text.splitlines() if line.startswith("# train ")]
    models = [f"{model}-{layers}-seed5" for layers in (1, 3) for model in ("relative_transformer_lm", "N0")]
    assert headings == [f"# train {model}" for model in models]
    trainings = commands(text, "fairseq-train")
    assert len(trainings) == 8 and all("--fp16" in command for command in trainings), "and fine-tunings"
    assert set(values(text, "--seed")) == {"5"} and values(text, "--max-update")[:2] == ["7", "150"]
    assert "my text.gz' >runs/persistent_memory-small/data/text" in text
    assert programs(text)[-4:] == ["python"] * 4, "curves, results by depth, comparison, and the figure"
    assert "# On this machine, training runs as 1 process on the CPU.\n" in text


@pytest.mark.parametrize(
    "name,model,rates",
    [
        ("enwik8", "relative_transformer_lm", ["0.004", "0.0004"]),
        ("wikitext103_ablation", "transformer-post", ["0.004"]),
        ("wikitext103_end_of_line", "without-eos with-eos", ["0.004", "0.0004", "0.0004"]),
    ],
)
def test_learning_rate(name, model, rates):
    """That of the command line replaces the recipe's; fine-tuning has a tenth of it."""
    text = printed(name, "--small", "--layers", 1, "--models", model, "--lr", "0.004")
    assert values(text, "--lr") == rates
    assert all(command.count("--lr") == 1 for command in commands(text, "fairseq-train"))


def test_seeds_and_spans(tmp_path):
    """A sweep prints the commands of all runs; LSTMs have one span."""
    models = ["--models", "relative_transformer_lm streaming_lstm_lm"]
    text = printed("copy", "--sweep", "--seeds", "1 2", "--spans", "4 8", "--depths", "1 2", *models, "--jobs", 3)
    assert programs(text).count("fairseq-train") == 2 * 2 * 2 + 2 * 2
    assert text.count("python -m fb_fairseq evaluate-labels") == 12
    own = ["--seeds", "2 1 2", "--span", 4, "--layers", 3, "--jobs", 2, *models, "--length", 7]
    text = printed("copy", *own, "--out", tmp_path, "--", "--fp16")
    assert re.findall("# == (.*)", text) == ["span4-layers3-seed2", "span4-layers3-seed1"]
    trainings = commands(text, "fairseq-train")
    assert len(trainings) == 4 and all("--fp16" in command for command in trainings)
    assert text.count("--length 7 --train 20000 --valid 200 --test 500") == 2
    assert "mkdir -p runs/copy-full/seed1\n" in printed("copy", "--seeds", "1 2", "--full")
    agents = printed("maze", "--seeds", "1 2", "--agents", "lstm feedback", "--jobs", 2)
    names = "lstm-seed1 feedback-seed1 lstm-seed2 feedback-seed2".split()
    assert re.findall("# train and evaluate (.*)", agents) == names
    agents = printed("maze", "--full", "--agents", "lstm")
    assert re.findall("# train and evaluate (.*)", agents) == [f"lstm-seed{seed}" for seed in range(1, 11)]


def test_curriculum():
    """Each model goes through all stages, and so do the learning curves."""
    models = ["streaming_lstm_lm", "relative_transformer_lm"]
    text = printed("counting", "--curriculum", "5 10", "--models", " ".join(models))
    run = "runs/counting-small-seed1"
    starts = [f"{run}/longest-{stage}/{model}/checkpoint_best.pt" for model in models for stage in (5, 10)]
    assert values(text, "--finetune-from-model") == starts and text.count("--srcdict") == 2
    trainings = commands(text, "fairseq-train")
    assert "--finetune-from-model" not in trainings[0] + trainings[3]
    (plot,) = commands(text, "python -m fb_fairseq plot")
    folders = ("longest-5/", "longest-10/", "")
    curves = [f"{model}={run}/{folder}{model}.log" for model in models for folder in folders]
    assert plot[plot.index("--curves") + 1 : plot.index("--metric")] == curves


def test_steps(tmp_path):
    """Those of --steps, whether or not the ones before have been run."""
    common = ["--small", "--layers", 1]
    text = printed("iwslt14_de_en", *common, "--models", "feedback", "--steps", "tune generate score")
    assert programs(text)[3:] == ["fairseq-generate", "python"] * 4 + ["python"] and "--lenpen 1.4" in text
    assert not re.search("fairseq-train|preprocess", text)
    text = printed("iwslt14_de_en", *common, "--models", "transformer", tmp_path)
    text = text.replace(" \\\n    ", " ")  # lines are broken where the folder's name is long
    raw = "runs/iwslt14_de_en-small/data/test.raw.en"
    assert f"--raw-ref {raw}" in text and f"gzip -dc {tmp_path}/test_2016_flickr.en.gz >{raw}" in text


def test_second_machine():
    nodes = ["--nodes", 2, "--node-rank", 1, "--rendezvous", "host:2000", "--models", "feedback_transformer_lm"]
    text = printed("enwik8", "--small", *nodes)
    assert "# On this machine, training runs as 1 process on the CPU, on each of 2 machines.\n" in text
    assert len(commands(text, "python -m torch.distributed.run")) == len(commands(text, "python")) == 2 * 2
    assert values(text, "--master-port", "python")[:2] == ["2000", "2001"]


RECORDER = f"""#!{sys.executable}
import json, os, sys
with open(os.environ["RECORD"], "a") as file:
    print(json.dumps([os.getcwd(), os.path.basename(sys.argv[0]), *sys.argv[1:]]), file=file)
"""


def test_quoting(tmp_path, monkeypatch):
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
    monkeypatch.setenv("FB_FAIRSEQ_ROOT", str(REPOSITORY))
    monkeypatch.setenv("FB_FAIRSEQ_VENV", str(folder / "venv"))
    monkeypatch.setenv("FB_FAIRSEQ_GPUS", "3")
    with pytest.raises(UserError, match="64 streams cannot be divided among 3 processes x 2"):
        printed("char_ptb", *arguments)
    monkeypatch.setenv("FB_FAIRSEQ_GPUS", "2")
    text = printed("char_ptb", *arguments, "--", *own)
    assert "# On this machine, training runs as 2 processes, one per GPU.\n" in text and not out.exists()
    record = tmp_path / "record"
    environment = {**os.environ, "RECORD": str(record)}
    subprocess.run(["bash", "-e"], input=text, text=True, check=True, env=environment, cwd="/")
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


@pytest.mark.parametrize("block", RESULTS, ids=lambda block: re.search(r"(\w+)\.sh", block)[1])
def test_commands_of_results(block):
    """The recipes take the commands of the results page, none of which trains into the folder of another model."""
    block = RECORD_CALLS + block.replace('"1 2 3', '"1').replace(" --jobs 2", "")
    done = subprocess.run(["bash", "-euc", block], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and not done.stderr, done.stderr
    text = ""
    for line in done.stdout.splitlines():
        script, *words = line.split("\x1f")[:-1]
        if script.endswith("sweep.sh"):
            name, *words = words[0], "--sweep", *words[1:]
        else:
            name = re.search(r'recipe(?:\.sh")? (\w+) "\$@"', (REPOSITORY / script).read_text())[1]
        text += printed(name, *words)
    found = commands(text, "fairseq-train", "python -m fb_fairseq rl train")
    folders = [command[command.index("--save-dir" if "--save-dir" in command else "--out") + 1] for command in found]
    assert folders and len(set(folders)) == len(folders)
