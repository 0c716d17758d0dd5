"""All recipes: their steps and options, what they refuse, and the commands of the pages."""

import gzip
import re
import shlex
import shutil
import subprocess
import sys
import zipfile

import pytest

from fb_fairseq.errors import UserError
from fb_fairseq.modules.memory import COMPOSITIONS
from fb_fairseq.papers.experiments.settings import COMPOSITION
from fb_fairseq.papers.rl.options import AGENTS
from fb_fairseq.papers.state_tracking.architectures import ARCHITECTURES
from fb_fairseq.papers.steps import Call, agents, command, machine, recipes, tracking
from tests.conftest import REPOSITORY
from tests.papers.programs import run_module
from tests.papers.steps.printed import CALLS, commands, printed, refuses, trainings, values

FEEDBACK = ["--models", "feedback_transformer_lm"]


@pytest.mark.parametrize("call", CALLS, ids=" ".join)
def test_every_recipe(call):
    """Steps have names and files of their own, all in the output folder, and trainings are resumed. (Their settings:
    ``test_snapshots.py``.)
    """
    name = call[0]
    recipe = recipes.find(name)
    options = {"minutes": int(call[2])} if "--minutes" in call else {}
    made = Call(name, "out", "DATA" if recipe.data else "", small="--full" not in call, options=options)
    steps = list(recipe.steps(made))
    written = [path for step in steps for path in step.writes]
    assert len(set(written)) == len(written) and all(path.startswith("out/") for path in written)
    assert len({step.does for step in steps}) == len(steps)
    assert [step.trains for step in steps] == [" train " in f" {step.does}" for step in steps]
    assert all(step.log in step.writes for step in steps if "fairseq-train" in step.words), "their logs are kept"
    read = [(step.does.startswith("check "), path) for step in steps for path in step.reads]
    assert {path for is_check, path in read if is_check} <= {path for is_check, path in read if not is_check}
    shown = printed(*call)
    assert f"[{len(steps)}/{len(steps)}]" in shown


def test_no_torch_is_imported():
    """To print the commands, which any Python does."""
    code = "import sys; sys.modules['torch'] = None; from fb_fairseq.commands import main; main(sys.argv[1:])"
    for name in ("char_ptb", "word_problem", "corridor", "iwslt14_de_en", "memory_composition", "quickstart"):
        words = [sys.executable, "-c", code, "recipe", name, "--print"]
        done = subprocess.run(words, cwd=REPOSITORY, capture_output=True, text=True)
        assert done.returncode == 0 and " train" in done.stdout.replace("-", " "), done.stderr


def test_names_that_are_kept_twice():
    """Where the first list is in a module that imports torch."""
    for name, kind in COMPOSITIONS.items():
        assert COMPOSITION.fullmatch(f"{name}2" if kind.takes else name)
    assert set(tracking.KNOWN) == set(ARCHITECTURES)
    assert agents.AGENTS == AGENTS


@pytest.mark.parametrize(
    "words,message",
    [
        ("chr_ptb", "chr_ptb: unknown recipe; did you mean char_ptb"),
        ("nosuch.py", "nosuch.py: no such file; give the file of a recipe"),
        ("char_ptb --models nosuch", "--models/--agents nosuch: unknown; choose from .*feedback_transformer_lm"),
        ("persistent_memory --models feedback_transformer_lm", "give N<number>"),
        *(
            (f"wikitext103_{table} {size} --models feedback_transformer_lm", "feedback_transformer_lm: unknown")
            for table in ("ablation", "end_of_line")
            for size in ("--full", "--small")
        ),
        ("enwik8 --layers 2", "--layers: only with --small"),
        (
            "char_ptb --layers 4 --models streaming_lstm_lm",
            "--layers: only for Transformers .*; leave out streaming",
        ),
        ("wikitext103_end_of_line --finetune-updates 0", "--finetune-updates 0: with-eos is a fine-tuned model"),
        ("wikitext103 --small --layers 3 --models feedback_transformer_lm", "--layers 3: give a power of two"),
        ("memory_composition --full --layers 3", "--layers 3: the papers' setting for PTB has 6"),
        ("quickstart --minutes 3", "--minutes 3: give 2, 10 or 60"),
        (
            f"quickstart --text {REPOSITORY / 'MANIFEST.in'}",
            "--text .*: has fewer than 1,000 bytes; give a longer text",
        ),
        ("copy --lr 0.1", "--lr: unknown option"),
        ("quickstart -- --lr 1", "--: this recipe takes no further options"),
        ("char_ptb --seeds 0", "--seeds/--seed: 0: give a number, 1 or more"),
        ("char_ptb --lr 0", "--lr: 0: give a number above 0"),
        ("char_ptb -- --lr=1", "--lr: give it before the --; fine-tuning then has a tenth of it"),
        ("char_ptb --small --models 'a b@d'", "--models/--agents: a b@d: use only letters, digits, - and _"),
        ("char_ptb --small --processes 3", "64 streams cannot be divided by 3: --processes"),
        *(
            (f"copy --out a{part}b", f"--out a.*b: fairseq interprets {re.escape(part)} in paths")
            for part in (":", ",", "${")
        ),
    ],
)
def test_mistakes(words, message):
    refuses(message, *shlex.split(words))


def test_without_data(capsys, tmp_path, monkeypatch):
    """Missing files are named before anything runs."""
    monkeypatch.chdir(tmp_path)
    for call, file in (
        (["char_ptb"], "ptb.train.txt"),
        (["char_ptb", "nowhere"], "nowhere/ptb.train.txt"),
        (["enwik8"], "DATA"),
    ):
        with pytest.raises(SystemExit):
            command.main(call)
        assert f"error: {file}: no such file; give one that exists" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        command.main(["cnn_dm", "--small", str(tmp_path)])
    assert "no *.csv or *.csv.gz in this folder" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_axes():
    """Each combination is a run; LSTMs have no span, and are trained once."""
    names = values(printed("copy", "--seeds", "1 2", "--spans", "4 16", "--layers", "1 3"), "--save-dir")
    models = {name.rsplit("/")[-1] for name in names}
    assert len(names) == len(models) == 2 * 2 * (2 + 2 + 1)
    assert {
        "feedback_transformer_lm-span16-3-seed2",
        "streaming_lstm_lm-1",
        "relative_transformer_lm-span4-1",
    } <= models
    names = values(
        printed("corridor", "--agents", "feedback lstm", "--spans", "2 3"), "--span", "python -m fb_fairseq rl"
    )
    assert names == ["2", "3"]
    for name in ("corridor", "copy"):
        lstm = printed(name, "--models", "lstm" if name == "corridor" else "streaming_lstm_lm", "--spans", "2 3")
        assert "figures.against" not in lstm, "LSTMs have no span to draw results against"
    text = printed(
        "word_problem",
        "--lrs",
        "0.1 0.01",
        "--seeds",
        "1 2",
        "--spans",
        "4",
        "--models",
        "feedback layer1",
        "--layers",
        "3 5",
        "--curriculum",
        "mixed",
    )
    assert len(commands(text, "python -m fb_fairseq state-tracking train")) == 16
    (speed,) = commands(text, "python -m fb_fairseq benchmark tracking")
    assert "--curriculum" not in speed
    assert [speed[speed.index(option) + 1] for option in ("--layers", "--span")] == ["3", "4"]


def test_data_of_toy_tasks():
    """Options of the data, and a curriculum, whose stages have their own data and the same dictionaries."""
    text = printed("reverse", *FEEDBACK, "--train", 50, "--curriculum", "2 4", "--test-length", 9)
    generated = commands(text, "python -m fb_fairseq synthetic-tasks reverse")
    assert [words[words.index("--length") + 1] for words in generated] == ["8", "2", "4"]
    assert all(words[words.index("--train") + 1] == "50" and "--test-length" in words for words in generated)
    runs = trainings(text)
    assert [run.finetune_from_model and run.finetune_from_model.split("/")[-2] for run in runs] == [
        None,
        "feedback_transformer_lm-length2",
        "feedback_transformer_lm-length4",
    ]
    prepared = commands(text, "fairseq-preprocess")
    assert ["--srcdict" in words for words in prepared] == [False, True, True]
    assert "--nested-assignments" in printed("algorithmic", "--nested-assignments")
    helps = {name: text for name, (_, text) in recipes.find("copy").options.items()}
    assert helps["test_length"] == f"{helps['length']} of the test split" and "to --length" in helps["shortest"]


def test_gpus_and_launch():
    """The batch is divided among the processes; words before the training's; others run here."""
    small = ["char_ptb", "--small", *FEEDBACK]
    assert {run.batch_size for run in trainings(printed(*small, gpus=4))} == {16}
    assert "--cpu" not in printed(*small, gpus=1) and "--cpu" in printed(*small)
    text = printed(*small, "--update-freq", 2, "--launch", "torchrun --nnodes 2", "--processes", 8)
    (first, *_) = commands(text, "torchrun --nnodes 2 fairseq-train ")
    assert first[first.index("--batch-size") + 1] == "4" and not commands(text, "fairseq-train ")
    assert printed("iwslt14_de_en", gpus=2).count("--max-tokens 2048") > 1


def test_jobs_beside_gpus():
    """Only fairseq-train divides an update among GPUs."""
    assert "state-tracking train" in printed("word_problem", "--jobs", 2, gpus=2)
    with pytest.raises(SystemExit):
        printed("iwslt14_de_en", "--jobs", 2, gpus=2)
    assert printed("iwslt14_de_en", "--jobs", 2, "--processes", 1, gpus=2)


def test_gpus_of_the_machine(monkeypatch):
    """torch is asked only where there is a driver."""
    monkeypatch.setattr(machine, "last_line", lambda words, environment: "3")
    monkeypatch.setattr(machine, "DRIVERS", ("/nowhere",))
    assert machine.gpus() == 0
    monkeypatch.setattr(machine, "DRIVERS", ("/",))
    assert machine.gpus() == 3


def test_extra_options_come_last():
    """So that they count."""
    (run, tuned) = trainings(
        printed("char_ptb", "--small", "--layers", 1, *FEEDBACK, "--", "--dropout", "0.3", "--clip-norm=7")
    )
    assert run.dropout == tuned.dropout == 0.3 and run.clip_norm == 7
    assert "--length 9" in printed("maze", "--", "--length", "9")


@pytest.mark.parametrize("names", [["text8"], ["a", "text8"]])
def test_a_zip(tmp_path, names):
    """A member, or the only file, whatever its name."""
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
        for name in names:
            archive.writestr(name, f"this is {name}")
    (step,) = [
        step for step in recipes.find("text8").steps(Call("text8", "out", str(tmp_path / "x.zip"))) if step.reads
    ]
    words = [sys.executable if word == "python" else word for word in step.words]
    done = subprocess.run(words, cwd=REPOSITORY, capture_output=True, text=True)
    assert done.stdout == "this is text8" and step.output == "out/text/text8"


def test_full_stops_of_summaries(tmp_path):
    """Are added where they are missing, also in a file with a byte order mark."""
    pytest.importorskip("sacremoses")
    text = 'article,highlights\nx,"He said ""yes.""\nA question?\nNo end\n(The end.)"\n'
    (tmp_path / "a.csv").write_text(text, encoding="utf-8-sig")
    words = [tmp_path / "a.csv", "--source", tmp_path / "s", "--target", tmp_path / "t"]
    assert run_module("experiments.corpora.read_csv", *words).status == 0
    assert (tmp_path / "t").read_text() == 'He said " yes . " A question ? No end . ( The end . )\n'


def test_a_csv_that_was_cut_off(tmp_path):
    pytest.importorskip("sacremoses")
    (tmp_path / "a.csv").write_text("id,article,highlights\n1,x y,z\n2,x")
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(b"id,article,highlights\n1,x y,z\n2,x,y")[:-9])
    (tmp_path / "b.csv.gz").write_bytes((tmp_path / "a.csv.gz").read_bytes()[:15])
    for name in ("a.csv", "a.csv.gz", "b.csv.gz"):
        words = [tmp_path / name, "--source", tmp_path / "s", "--target", tmp_path / "t"]
        done = run_module("experiments.corpora.read_csv", *words)
        assert done.errors.endswith("ends too early; give an intact copy\n") and str(tmp_path / name) in done.errors
    (tmp_path / "a.csv").write_text('id,article,highlights\n1,"x","y"\n2,"x","cut off')
    words[0] = tmp_path / "a.csv"
    assert "a.csv: is no intact CSV" in run_module("experiments.corpora.read_csv", *words).errors
    words[0] = tmp_path / "b.csv.gz"
    (tmp_path / "b.csv.gz").write_bytes(b"article,highlights")
    assert "is no intact CSV in UTF-8 (Not a gzipped file" in run_module("experiments.corpora.read_csv", *words).errors


@pytest.mark.parametrize(
    "kind,right,wrong,message",
    [
        ("md5", "dd8c6a395b5dd36c56d23275028f526c", "0", "md5 dd8c.*, not 0; give the published corpus"),
        ("lines", 2, 3, "lines 2, not 3; give the published corpus"),
        ("least", 2, 3, "has 2 lines, fewer than 3; give more text"),
    ],
)
def test_checks(tmp_path, kind, right, wrong, message):
    path = tmp_path / "text"
    path.write_text("a\nb\n")
    assert not run_module("steps.check", kind, path, right).errors
    assert re.search(f"text: {message}", run_module("steps.check", kind, path, wrong).errors)


def test_memory_composition():
    """Two recipes in one; PTB, its options and its number of layers are left out without its data."""
    text = printed("memory_composition", "--small", "--layers", 1, "--seeds", 2, "--walk-updates", 5, "--updates", 7)
    runs = trainings(text)
    assert {run.max_update for run in runs} == {5, 7, 100} and {run.seed for run in runs} == {2}
    find = recipes.find("memory_composition").steps
    steps = find(Call("memory_composition", "out", small=False, options={"layers": 2}))
    assert {step.does.split(":")[0] for step in steps} == {"walk", "draw composition.png"}
    with pytest.raises(UserError, match="^--updates.*PTB"):
        list(find(Call("memory_composition", "out", options={"finetune_updates": 0})))


def test_quickstart():
    """More minutes are more updates, in a folder of their own; on a CPU even if there is a GPU."""
    texts = [printed("quickstart", *(["--minutes", minutes] if minutes else []), gpus=1) for minutes in ("", 10, 60)]
    found = [int(value) for text in texts for value in values(text, "--max-update")]
    assert found == sorted(set(found)) and all("--cpu" in text for text in texts)
    folders = [value for text in texts for value in values(text, "--save-dir")]
    assert folders == [f"runs/quickstart{end}/checkpoints" for end in ("", "-10", "-60")]


def test_folders(monkeypatch, tmp_path):
    """Relative ones of the caller of a script in examples/, which runs the commands in the clone. A bare name is none
    of an option's values.
    """
    assert values(printed("copy", *FEEDBACK, "--out", 2), "--save-dir") == ["./2/feedback_transformer_lm"]
    monkeypatch.setenv("FB_FAIRSEQ_CALLER", str(tmp_path))
    text = printed("enwik8", "--small", "text", "--out", "out", "--layers", 1, *FEEDBACK)
    assert values(text, "--save-dir")[0] == f"{tmp_path}/out/feedback_transformer_lm-1"
    assert f"cp {tmp_path}/text {tmp_path}/out/text/enwik8" in text.replace(" \\\n   ", "")  # if the line is long
    defaults = {name: values(printed(name), "--out", "python -m")[-1] for name in ("copy", "maze", "word_problem")}
    assert {path.split("/")[1] for path in defaults.values()} == {"copy-small", "maze-small", "word_problem-small"}
    assert "mkdir -p runs/word_problem-S3-small " in printed("word_problem", "--group", "S3")


# Calls of scripts print their words; other commands are not found.
RECORD = "set -e\nbash() { printf '%q ' \"$@\"; echo; }\n"


def blocks_with_scripts(page):
    """The blocks of a page that call scripts in examples/."""
    text = page.read_text(encoding="utf-8").replace("translation/<corpus>", "translation/iwslt14_de_en")
    blocks = re.findall(r"^```bash\n(.*?)^```", text.replace("<corpus>", "enwik8"), re.MULTILINE | re.DOTALL)
    return [block for block in blocks if "bash examples/" in block]


PAGES = [page for page in REPOSITORY.glob("examples/**/*.md") if blocks_with_scripts(page)]


def script_calls(page):
    """The words of each call of a script, the script's path first."""
    for block in blocks_with_scripts(page):
        words = [shutil.which("bash"), "-c", RECORD + block]
        done = subprocess.run(words, cwd=REPOSITORY, env={"PATH": "/nowhere"}, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        yield from map(shlex.split, done.stdout.splitlines())


@pytest.mark.parametrize(
    "page", [REPOSITORY / "docs/state-tracking.md", *PAGES], ids=lambda path: str(path.relative_to(REPOSITORY))
)
def test_commands_of_the_pages(page):
    """Each call of a script is a valid one of its recipe, and a block calls nothing else."""
    calls = list(script_calls(page))
    assert calls
    for script, *words in calls:
        if script == "examples/recipe.sh":
            recipe, *words = words
        else:
            text = (REPOSITORY / script).read_text()
            (recipe,) = re.findall(r'(?:recipe\.sh"|^recipe) (\w+) "\$@"', text, re.MULTILINE)
        assert "\n# [1/" in printed(recipe, *(word.strip("[]") for word in words)), (script, words)


def test_recipe_in_a_file(tmp_path):
    """Mistakes in it are told in one line."""
    for text, message in (
        ("RECIPE = 3", "has no variable RECIPE with a recipe"),
        ("1 / 0", "ZeroDivisionError: division by zero"),
        ("def", "SyntaxError: invalid syntax"),
    ):
        (tmp_path / "mine.py").write_text(text)
        refuses(f"mine.py: {message}", str(tmp_path / "mine.py"))


def test_the_quickstart_tells_its_commands():
    assert [name for name, recipe in recipes.RECIPES.items() if recipe.told] == ["quickstart"]
