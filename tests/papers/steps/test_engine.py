"""The engine of recipes: what is done, what is done again and what is refused; steps that fail."""

import os
import signal
import subprocess

import pytest

from fb_fairseq.errors import UserError
from fb_fairseq.papers.results.record import MARK, read_record
from fb_fairseq.papers.results.settings import own_settings
from fb_fairseq.papers.steps import Step, engine, environment
from fb_fairseq.papers.steps.plan import Plan
from fb_fairseq.papers.steps.show import show
from tests.conftest import REPOSITORY

ADD = "import sys; open(sys.argv[1], 'a').write(sys.argv[2])"
OPTIONS = "import sys; [open(path, 'a').write('+') for path in sys.argv[1].split()]; print(*sys.argv[2:])"


@pytest.fixture
def out(tmp_path, monkeypatch):
    """An output folder, relative to the current one; hardware is not asked for."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(engine.machine, "hardware", lambda environment: "some CPU")
    return tmp_path / "out"


def step(name, *words, **more):
    """A step that adds a word to the file OUT/NAME."""
    return Step(name, ["python", "-c", ADD, f"out/{name}", *words], [f"out/{name}"], **more)


def training(name, *options, **more):
    """One that adds + to OUT/NAME/model.pt."""
    path = f"out/{name}/model.pt"
    return Step(f"train {name}", ["python", "-c", OPTIONS, path, *options], [path], trains=True, **more)


def run(*steps, **more):
    engine.run("own", steps, "out", **more)


def text(out, name):
    return (out / name).read_text() if (out / name).exists() else None


def test_done_is_one_rule(out):
    """Its files are there, and this very command has written them after all that it depends on."""
    first = step("a", "1")
    second = step("b", "out/a")
    other = step("c", "3")
    run(first, second, other)
    marks = {name: (out / name).stat().st_mtime_ns for name in "abc"}
    run(first, second, other)
    assert marks == {name: (out / name).stat().st_mtime_ns for name in "abc"}, "nothing runs again"
    (out / "b").unlink()
    run(first, second, other)
    assert text(out, "b") == "out/a" and (out / "a").stat().st_mtime_ns == marks["a"], "only what is missing"
    run(step("a", "2"), second, other)
    assert text(out, "a") == "2", "another command replaces the file"
    again = {name: (out / name).stat().st_mtime_ns > marks[name] for name in "abc"}
    assert again == {"a": True, "b": True, "c": False}, "and what depends on it runs again, too"


def test_all_files_of_a_step_have_to_be_there(out):
    code = "import sys; [open(path, 'w') for path in sys.argv[1:]]"
    both = Step("both", ["python", "-c", code, "out/a", "out/b"], ["out/a", "out/b"])
    run(both)
    (out / "b").unlink()
    run(both)
    assert (out / "b").exists()


def test_the_environment_of_commands(tmp_path, monkeypatch):
    """This package first, and then what is there; its folder for its name as --user-dir, wherever one is."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", "/a")
    assert environment.variables()["PYTHONPATH"] == f"{REPOSITORY}:/a"
    monkeypatch.delenv("PYTHONPATH")
    assert environment.variables()["PYTHONPATH"] == str(REPOSITORY)
    words = ["x", "--user-dir", "fb_fairseq", "--user-dir", "other"]
    assert environment.resolved(words) == ["x", "--user-dir", f"{REPOSITORY}/fb_fairseq", "--user-dir", "other"]


def test_dependencies(out):
    """Words name files, folders above them, beginnings of their names, also as NAME=PATH. Checks of the user's files
    come before what reads them."""
    steps = [step("x/data.bin", "1"), step("y", "1"), step("z", "z=out/y"), step("w", "out/x/data"), step("v", "out")]
    assert Plan("own", "out", steps).after == [[], [], [1], [0], [0, 1, 2, 3]]
    steps = [Step("a", [], ["x=y/a.log"]), Step("b", ["x=y/a.log"], ["x=y/b"]), Step("c", ["n=x=y/a.log"], ["x=y/c"])]
    assert Plan("own", "x=y", steps).after == [[], [0], [0]]
    (out.parent / "text").touch()
    steps = [step("a", reads=["text"]), step("b"), step("c", reads=["text"])]
    assert Plan("own", "out", steps).after == [[], [], [0]]


def test_a_training_that_starts_from_another(out):
    """Of this call or of an earlier one."""
    tuned = training("b", "--init", "out/a/model.pt")
    with pytest.raises(UserError, match="^out/a/model.pt: not there, but train b starts from it"):
        run(tuned)
    run(training("a"))
    run(tuned)
    assert text(out, "b/model.pt") == "+"
    run(training("c"), training("d", "--init", "out/c/model.pt"))
    assert text(out, "d/model.pt") == "+"


def test_another_training_is_refused(out):
    """In one line that names the difference. Options on which no result depends may differ, and data that are made
    anew count as well. What was begun and has saved nothing is free."""
    data = step("data", "--size", "5")
    run(data, training("a", "out/data", "--lr", "0.1", "--log-interval", "5"))
    run(data, training("a", "out/data", "--lr", "0.1", "--log-interval", "9"))
    assert text(out, "a/model.pt") == "++", "it goes on"
    for changed, difference in (
        ([data, training("a", "out/data", "--lr", "0.2")], "lr 0.2 instead of 0.1"),
        ([data, training("a", "out/data", "--lr", "0.1", "--clip", "1")], "clip 1 instead of nothing"),
        ([step("data", "--size", "6"), training("a", "out/data", "--lr", "0.1")], "size 6 instead of 5"),
    ):
        with pytest.raises(
            UserError, match=f"^out/a: was begun with other settings: {difference}; choose another --out"
        ):
            run(*changed)
    assert read_record("out")["steps"]["OUT/data"]["command"][-1] == "5", "nothing ran before it was refused"
    (out / "a/model.pt").unlink()
    run(data, training("a", "out/data", "--lr", "0.2"))


def test_settings(out):
    """All that a training depends on, but seeds: options of its data, checksums of the user's files, the settings of
    the model that it starts from. A batch is that of all processes."""
    (out.parent / "text").write_text("abc")
    data = Step("copy", ["cp", "text", "out/text"], ["out/text"], ["text"])
    binary = step("data/dict.txt", "--split", "90", "--text", "out/text")
    first = training("a", "out/data", "--seed", "1", "--batch-size", "4", "--update-freq", "2", "--cpu", "--amp")
    tuned = training("b", "out/data", "--lr=2", "--init", "out/a/model.pt", "--seed", "3")
    run(data, binary, first, tuned, processes=2)
    steps = read_record("out")["steps"]
    own = {"amp": "", "batch_size": "16", "data text": "3 bytes, CRC 352441c2", "split": "90"}
    assert steps["OUT/a/model.pt"]["settings"] == own
    common = {"data text": own["data text"], "split": "90", "lr": "2"}
    assert steps["OUT/b/model.pt"]["settings"] == {**common, **{f"init {name}": own[name] for name in own}}
    assert steps["OUT/b/model.pt"]["hardware"] == "some CPU" and steps["OUT/b/model.pt"]["commit"]
    (out.parent / "text").write_text("abd")
    with pytest.raises(UserError, match="data text 3 bytes, CRC .* instead of 3 bytes, CRC"):
        run(data, binary, first, tuned, processes=2)


def test_settings_of_one_name(out):
    """Those of another step with the same name have the option before it. Words that launch a training do not count."""
    steps = [
        step("a", "--size", "4"),
        step("b", "--size", "8"),
        step("c/dict", "--text", "out/a", "--dictionary", "out/b"),
    ]
    words = ["torchrun", "--nnodes", "2", "fairseq-train", "--data", "out/c", "--lr", "1", "--save-dir", "out/d"]
    found = Plan("own", "out", [*steps, Step("train d", words, ["out/d/a.pt"], trains=True)])
    assert found.planned["OUT/d/a.pt"]["settings"] == {"lr": "1", "size": "4", "dictionary size": "8"}


@pytest.mark.parametrize(
    "words,settings",
    [
        ("--batch-size 4 --update-freq 3", {"batch_size": "24"}),
        ("--max-tokens 100 --update-freq 4,2", {"max_tokens": "200", "update_freq": "4,2"}),
        ("--update-freq 3", {"update_freq": "3"}),
        ("--update-freq 1", {}),
    ],
)
def test_settings_of_a_batch(words, settings):
    """The batch of an update counts, not how many processes and parts make it, as long as that is one number."""
    assert own_settings({"command": words.split(), "reads": {}, "processes": 2}) == (settings, {})


def test_a_folder_that_was_moved(out):
    """Its record names files relative to it."""
    run(training("a", "--lr", "1"), step("b", "out/a/model.pt"))
    out.rename(out.parent / "other")
    moved = [
        Step("train a", ["python", "-c", OPTIONS, "other/a/model.pt", "--lr", "1"], ["other/a/model.pt"], trains=True)
    ]
    engine.run("own", moved, "other")
    assert (out.parent / "other/a/model.pt").read_text() == "+"


@pytest.mark.parametrize(
    "content,message",
    [
        ({"notes.txt": "mine"}, "has files that this command has not written"),
        ({MARK: '{"recipe": "copy", "steps": {}}'}, "is of the recipe copy; give another folder"),
        ({MARK: "{"}, "is damaged; give another --out"),
    ],
)
def test_folders_of_others(out, content, message):
    out.mkdir()
    for name, value in content.items():
        (out / name).write_text(value)
    with pytest.raises(UserError, match=message):
        run(step("a", "1"))
    assert {path.name for path in out.iterdir()} - {".lock"} == set(content)
    assert {name: (out / name).read_text() for name in content} == content, "untouched"


def test_commands_are_told(out, capsys):
    """Each of them, if they are to be, whatever is shown of the steps before."""
    run(step("a", "first"), step("b", "second"), told=True)
    printed = capsys.readouterr().out
    assert "out/a first" in printed and "out/b second" in printed


def test_what_measures_time_runs_alone(out):
    """Each step is slow, and writes down whether the one before had ended."""
    slow = "import os, sys, time; found = os.path.exists(sys.argv[2]); time.sleep(0.3); "
    slow += "open(sys.argv[1], 'w').write(str(found))"
    steps = [
        Step(name, ["python", "-c", slow, f"out/{name}", before], [f"out/{name}"], alone=alone)
        for name, before, alone in (("a", "-", False), ("b", "./out/a", True), ("c", "./out/b", False))
    ]
    run(*steps, jobs=3)
    assert [text(out, name) for name in "abc"] == ["False", "True", "True"]


@pytest.mark.parametrize("jobs", [1, 3])
def test_a_step_that_fails(out, jobs, capsys):
    """What depends on it does not run, all else does; the next call goes on."""
    fails = Step("prepare", ["python", "-c", "print('no luck'); exit(3)"], ["out/x"])
    steps = [fails, step("y", "out/x"), step("z", "1"), step("end", "out")]
    with pytest.raises(
        UserError, match="^prepare failed: no luck; see out/logs/prepare.log. Run the same command again"
    ):
        run(*steps, jobs=jobs)
    assert [text(out, name) for name in ("y", "z", "end")] == [None, "1", None]
    assert "[1/4] prepare: failed: no luck" in capsys.readouterr().out
    run(step("x", "0"), *steps[1:], jobs=jobs)
    assert [text(out, name) for name in ("y", "z", "end")] == ["out/x", "1", "out"]


@pytest.mark.parametrize(
    "words,message",
    [
        (["python", "-c", "pass"], "did not write out/x"),
        (["python", "-c", "import sys; sys.exit('a\\nlast line')"], "failed: last line"),
    ],
)
def test_half_written_files_are_not_done(out, words, message):
    """A step whose command succeeds without its files has failed, and output appears when a command has succeeded."""
    with pytest.raises(UserError, match=message):
        run(Step("s", words, ["out/x"], output="out/y"))
    assert not read_record("out")["steps"]["OUT/x"].get("done")
    assert (out / "y").exists() == ("did not" in message)
    with pytest.raises(UserError, match="nosuch: no such program beside this Python or on PATH"):
        run(Step("s", ["nosuch"], ["out/x"]))


def test_input_output_and_logs(out, capsys):
    """Logs are added to; what is to be shown is shown."""
    (out.parent / "in").write_text("abc")
    steps = [Step("cat", ["cat"], ["out/o"], ["in"], output="out/o", source="in", shown=True)]
    run(*steps)
    assert text(out, "o") == "abc" and "\nabc\n" in capsys.readouterr().out
    for _ in range(2):
        run(training("a", "--words", log="out/a.log"))
        (out / "a/model.pt").unlink()
    assert text(out, "a.log").count("--words\n") == 4, "the command, and its output, twice"
    run(Step("say", ["python", "-c", "print(7); open('out/b', 'w')"], ["out/b"], shown=True))
    assert "[1/1] say: 7\n" in capsys.readouterr().out
    run(Step("whisper", ["python", "-c", "print(7); open('out/c', 'w')"], ["out/c"]))
    assert "whisper: 7" not in capsys.readouterr().out


def test_seconds_of_a_training_that_goes_on_are_added(out, monkeypatch):
    """Those of other steps are of the last run."""
    begun, begin = [], Plan.begin

    def watched(plan, place, *given):
        begin(plan, place, *given)
        begun.append(plan.recorded(place)["seconds"])
        plan.recorded(place)["seconds"] += 5.0

    monkeypatch.setattr(Plan, "begin", watched)
    for _ in range(2):
        run(Step("say", ["python", "-c", "open('out/b', 'w')"], ["out/b"]), training("a"))
        for name in ("b", "a/model.pt"):
            (out / name).unlink()
    assert begun[:3] == [0.0, 0.0, 0.0] and 5.0 <= begun[3] < 500


@pytest.mark.parametrize(
    "cores,jobs,given,threads", [(7, 2, None, "3"), (1, 2, None, "1"), (7, 2, "5", "5"), (7, 1, None, "")]
)
def test_threads(out, monkeypatch, cores, jobs, given, threads):
    """Steps that run at the same time share the cores, unless a number of threads is given."""
    monkeypatch.setattr(os, "cpu_count", lambda: cores)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    if given:
        monkeypatch.setenv("OMP_NUM_THREADS", given)
    code = "import os, sys; open(sys.argv[1], 'w').write(os.environ.get('OMP_NUM_THREADS', ''))"
    run(Step("a", ["python", "-c", code, "out/a"], ["out/a"]), jobs=jobs)
    assert text(out, "a") == threads


def test_a_signal_while_a_step_starts(out):
    """It gets the signal as soon as it can."""
    plan = Plan("own", "out", [Step("a", ["python", "-c", "import time; time.sleep(9)"], ["out/a"])], 1)
    out.mkdir()
    plan.write()
    made = engine.Engine(plan, 1, False)
    made.stopped = signal.SIGTERM
    made.start(0)
    assert made.running[0].process.wait() == -signal.SIGTERM


def test_what_is_printed_is_what_is_run(out, capsys):
    """In a shell it does the same."""
    (out.parent / "in put").write_text("x")
    steps = [step("a b", "it's"), Step("cat", ["cat", "out/a b"], ["out/c/d"], output="out/c/d")]
    steps += [
        Step("sort", ["sort"], ["out/e"], source="in put", output="out/e"),
        training("t", "--x", "1", log="out/t.log"),
    ]
    show("own", steps, "out")
    printed = capsys.readouterr().out
    subprocess.run(["bash", "-euc", printed], check=True, env={**os.environ, "PYTHONPATH": ""})
    assert text(out, "c/d") == "it's" and text(out, "e") == "x\n" and text(out, "t/model.pt") == "+"
    assert text(out, "t.log") == "--x 1\n"
    command = ["bash", "-euc", f"{printed.splitlines()[2]}; echo $PYTHONPATH"]
    for before, after in (("", f"{REPOSITORY}\n"), ("/a", f"{REPOSITORY}:/a\n")):  # (an empty entry is the own folder)
        env = {**os.environ, "PYTHONPATH": before}
        assert subprocess.run(command, env=env, stdout=subprocess.PIPE, text=True).stdout == after
