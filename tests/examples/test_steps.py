"""The functions that the recipes share, examples/steps.sh."""

import os
import signal
import subprocess
import sys

import pytest

from tests.conftest import REPOSITORY

FIND_NODES = """
set -euo pipefail
. "$1/examples/steps.sh"
todo="prepare train evaluate" nodes=$2 node_rank=$3 rendezvous=$4
find_nodes
echo "$nodes $node_rank ${host:-} ${port:-}" $todo
"""
SLURM = {
    "SLURM_STEP_NUM_TASKS": "2",
    "SLURM_STEP_NUM_NODES": "2",
    "SLURM_STEP_NODELIST": "gpu[7-8]",
    "SLURM_NODEID": "1",
    "SLURM_JOB_ID": "1230042",
}
ALL_STEPS = "prepare train evaluate"


@pytest.mark.parametrize(
    "options,slurm,found",
    [
        (["", "", ""], {}, f"1 0 {ALL_STEPS}"),
        (["2", "0", "a.b:29500"], {}, f"2 0 a.b 29500 {ALL_STEPS}"),
        (["2", "1", "::1:29500"], {}, "2 1 ::1 29500 train"),
        (["", "", ""], SLURM, "2 1 gpu7 20042 train"),
        (["", "", "a:29500"], {**SLURM, "SLURM_NODEID": "0"}, f"2 0 a 29500 {ALL_STEPS}"),
        (["1", "", ""], SLURM, f"1 0 {ALL_STEPS}"),
        (["", "", ""], {**SLURM, "SLURM_STEP_NUM_TASKS": "4"}, "error: srun starts 4 tasks; start one per machine"),
        (["2", "1", "a:70000"], {}, "error: --rendezvous a:70000: give HOST:PORT"),
        (["2", "01", "a:29500"], {}, "error: --node-rank 01: give this machine's number, from 0 to 1"),
    ],
)
def test_find_nodes(tmp_path, options, slurm, found):
    """From the options, or from Slurm's variables in a step with one task per machine."""
    scontrol = tmp_path / "scontrol"
    scontrol.write_text("#!/bin/sh\necho gpu7\necho gpu8\n")
    scontrol.chmod(0o755)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SLURM_")}
    environment.update(slurm, PATH=f"{tmp_path}:{environment['PATH']}")
    command = ["bash", "-c", FIND_NODES, "recipe", str(REPOSITORY), *options]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert " ".join((done.stdout + done.stderr).split()).startswith(found)
    assert (done.returncode == 0) == (not found.startswith("error"))


JOBS = """
set -euo pipefail
. "$1/examples/steps.sh"
out=$2 jobs=2 processes=1
run() {
    echo "begins"
    [ "$1" != bad ] || fail "has no data"
    if [ "$1" = long ]; then "$PYTHON" -c 'import time; print("sleeps", flush=True); time.sleep(60)'; fi
    echo "ends"
}
prepare_jobs
for name in "${@:3}"; do start_job "$name" run "$name"; done
wait_for_jobs
echo "all done"
"""


def start_jobs(tmp_path, *names):
    command = ["bash", "-c", JOBS, "recipe", str(REPOSITORY), str(tmp_path), *names]
    environment = {**os.environ, "PYTHON": sys.executable}
    pipes = dict(stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def heed_interrupts():  # where the tests themselves run in the background, SIGINT is ignored
        signal.signal(signal.SIGINT, signal.SIG_DFL)

    return subprocess.Popen(command, env=environment, start_new_session=True, preexec_fn=heed_interrupts, **pipes)


def test_jobs(tmp_path):
    """Their lines bear their names; one that fails does not stop the others, and is named at the end."""
    output, errors = start_jobs(tmp_path, "a", "b", "c").communicate(timeout=60)
    assert sorted(output.splitlines()[:-1]) == [f"[{name}] {line}" for name in "abc" for line in ("begins", "ends")]
    assert output.splitlines()[-1] == "all done" and not errors
    output, errors = start_jobs(tmp_path, "a", "bad", "c").communicate(timeout=60)
    assert {"[bad] error: has no data", "[a] ends", "[c] ends"} <= set(output.splitlines()) and "all done" not in output
    assert "error: some runs failed: bad;" in errors and (tmp_path / "failed").read_text() == "bad\n"


def test_interrupted_jobs(tmp_path):
    """Ctrl-C stops the runs in the background, with all their processes."""
    process = start_jobs(tmp_path, "long", "a")
    assert any("sleeps" in line for line in process.stdout), "until it runs"
    os.kill(process.pid, signal.SIGINT)
    output, _ = process.communicate(timeout=30)
    assert process.returncode == 130 and "KeyboardInterrupt" in output and "all done" not in output


DRAW_CURVES = """
set -euo pipefail
. "$1/examples/steps.sh"
printing=no
run() { echo "$@"; }
draw_curves "$2" nll_loss "$2/stage"
"""


def draw_curves(tmp_path):
    command = ["bash", "-c", DRAW_CURVES, "recipe", str(REPOSITORY), str(tmp_path)]
    return subprocess.run(command, capture_output=True, text=True)


def test_runs_without_curves_are_left_out(tmp_path):
    """A run that was interrupted before it logged anything has no curve; the others' are drawn."""
    begun = "{'best_checkpoint_metric': 'nll_loss'}\n"
    point = '{"nll_loss": "6.6", "num_updates": "25"}\n'
    (tmp_path / "stage").mkdir()
    for name, text in {
        "a.log": begun + point,
        "a-finetuned.log": begun,
        "b.log": begun,
        "c.log": begun + '{"valid_nll_loss": "6.6", "valid_num_updates": "25"}\n',
        "c-finetuned.log": begun + point,
        "stage/a.log": begun,
        "stage/c.log": begun + point,
    }.items():
        (tmp_path / name).write_text(text)
    done = draw_curves(tmp_path)
    curves = [
        f"a={tmp_path}/a.log",
        f"c={tmp_path}/stage/c.log",
        f"c={tmp_path}/c.log",
        f"c={tmp_path}/c-finetuned.log",
    ]
    assert f"plot --curves {' '.join(curves)} --metric nll_loss" in done.stdout, done.stderr


def test_without_any_curve_nothing_is_drawn(tmp_path):
    done = draw_curves(tmp_path)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr


PREPARE = """
set -euo pipefail
. "$1/examples/steps.sh"
input=$2 out=$3 data=$3/data
prepare() { echo "preparing $1"; tr a-z A-Z <"$1/text" >"$2/train.bin"; ${KILLED:-:}; echo 1 >"$2/dict.txt"; }
prepare_data "$4"
"""
DONE = "== prepare: done already\n"


@pytest.fixture
def prepare(tmp_path):
    """Runs prepare_data with a setting, for the folder tmp_path/input and OUT tmp_path/out."""
    (tmp_path / "input").mkdir()
    (tmp_path / "input/text").write_text("abc")
    (tmp_path / "out").mkdir()
    (tmp_path / "out/log").touch()

    def run(setting, **environment):
        names = [str(name) for name in (REPOSITORY, tmp_path / "input", tmp_path / "out")]
        command = ["bash", "-c", PREPARE, "recipe", *names, setting]
        return subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True)

    return run


def test_data_are_prepared_once(tmp_path, prepare):
    """Until the input's contents, the setting or the data change."""
    prepared = f"== prepare\npreparing {tmp_path}/input\n"
    data = tmp_path / "out/data"
    assert prepare("small").stdout == prepared and prepare("small").stdout == DONE
    os.utime(tmp_path / "input/text", (0, 0))
    assert prepare("small").stdout == DONE, "contents, not times"
    for change in (
        lambda: (tmp_path / "input/text").write_text("abd"),
        lambda: (tmp_path / "input/more").write_text(""),
        lambda: (data / "dict.txt").unlink(),
        lambda: (data / "train.bin").write_text(""),
    ):
        change()
        assert prepare("small").stdout == prepared and prepare("small").stdout == DONE
    assert prepare("full").stdout == prepared and prepare("full").stdout == DONE
    assert (data / "train.bin").read_text() == "ABD" and not (tmp_path / "out/data.tmp").exists()


@pytest.mark.parametrize("how", ["exit 3", "kill -9 $$"])
def test_interrupted_prepare_is_not_done(tmp_path, prepare, how):
    assert prepare("small", KILLED=f"eval {how}").returncode != 0
    assert not (tmp_path / "out/data").exists()
    assert prepare("small").stdout.startswith("== prepare\n") and (tmp_path / "out/data/dict.txt").exists()
    (tmp_path / "input/text").write_text("other")
    assert prepare("small", KILLED=f"eval {how}").returncode != 0
    assert (tmp_path / "out/data/train.bin").read_text() == "ABC", "the old data stay"
    assert prepare("small").stdout.startswith("== prepare\n")


def test_data_of_trained_models_stay(tmp_path, prepare):
    """The same data are accepted, other data are not."""
    prepare("small")
    (tmp_path / "out/model").mkdir()
    (tmp_path / "out/model/checkpoint_best.pt").touch()
    assert prepare("full").returncode == 0, "made in another way, but the same"
    (tmp_path / "input/text").write_text("other")
    refused = "holds models that were trained on other data; choose another --out, or delete this one\n"
    assert prepare("full").stderr == f"error: {tmp_path}/out: {refused}"
    assert prepare("small").stderr == f"error: {tmp_path}/out: {refused.replace('data;', 'data (full);')}"
    assert (tmp_path / "out/data/train.bin").read_text() == "ABC" and not (tmp_path / "out/data.tmp").exists()
    (tmp_path / "input/text").write_text("abc")
    assert prepare("full").stdout == DONE


SETTING = REPOSITORY / "examples/setting.py"
GIVEN = ["data", "--dropout", "0.1", "--batch-size", "64", "--seed", "1", "--from", "OUT/a b/x.pt"]


@pytest.fixture
def setting(tmp_path):
    """Runs setting.py for tmp_path/model with these options; returns what it prints."""

    def run(*options, processes=1, out=tmp_path):
        words = [str(option).replace("OUT", str(out)) for option in options]
        command = [sys.executable, str(SETTING), f"{out}/model", str(out), str(processes), *words]
        done = subprocess.run(command, capture_output=True, text=True)
        assert not done.stderr and (done.returncode == 0) == (not done.stdout), done.stderr
        return done.stdout

    return run


def trained(tmp_path):
    (tmp_path / "model").mkdir()
    (tmp_path / "model/checkpoint_best.pt").touch()


def test_the_same_setting_goes_on(tmp_path, setting):
    setting(*GIVEN)
    trained(tmp_path)
    assert (tmp_path / "model.setting").read_text() == ("--batch-size 64\n--dropout 0.1\n--from a b/x.pt\n--seed 1\n")
    assert setting(*GIVEN, "--max-update", 9, "--cpu", "--log-interval", 5, "--validate-interval-updates=3") == ""
    assert setting(*GIVEN, "--batch-size", 8, "--update-freq", 4, processes=2) == "", "as many streams"
    assert setting("elsewhere", "--dropout", 0.5, *GIVEN[1:]) == "", "the last one counts"
    tmp_path.rename(tmp_path.with_name("moved"))
    assert setting(*GIVEN, out=tmp_path.with_name("moved")) == ""


@pytest.mark.parametrize(
    "options,message",
    [
        (["--dropout", "0.3"], "--dropout 0.3 instead of 0.1"),
        (["--adaptive-span"], "--adaptive-span is new"),
        (["--update-freq", 2], "--batch-size 128 instead of 64"),
        (["--update-freq", "1,2"], "--update-freq 1,2 is new"),
        (["--arch=b", "--lr", "-1", "--seed", "2", "--dropout", "0"], "--arch b is new, --dropout 0 instead of 0.1, "
         "--lr -1 is new, and 1 more"),
    ],
)  # fmt: skip
def test_another_setting_is_refused(tmp_path, setting, options, message):
    """As soon as there is a checkpoint; the setting stays as it is."""
    setting(*GIVEN)
    assert setting(*GIVEN, *options) == "", "nothing is trained yet"
    setting(*GIVEN)
    trained(tmp_path)
    expected = (
        f"{tmp_path}/model: was trained with other options: {message}; choose another --out, or delete this folder\n"
    )
    assert setting(*GIVEN, *options) == expected
    assert setting(*GIVEN) == ""
    assert "--seed 1 is missing" in setting(*GIVEN[:5], *GIVEN[7:])


TORCH = """
set -euo pipefail
. "$1/examples/environment.sh"
has_nvidia() { [ "$2" = gpu ]; }
uname() { echo Linux; }
recorder() { echo "$@" >"$record"; [ -z "${FAILS:-}" ]; }
record=$3 python=$4
install_torch "$python" recorder
"""


@pytest.mark.parametrize(
    "gpu,variables,index,message",
    [
        ("none", {}, "https://download.pytorch.org/whl/cpu", ""),
        ("none", {"FAILS": "yes"}, "https://download.pytorch.org/whl/cpu", "using the usual package index"),
        ("gpu", {}, None, ""),
        ("gpu", {"FB_FAIRSEQ_TORCH": "https://a.b/c"}, "https://a.b/c", ""),
        ("none", {"FB_FAIRSEQ_TORCH": ""}, None, ""),
    ],
)
def test_builds_of_pytorch_without_cuda(tmp_path, gpu, variables, index, message):
    """Where there is no NVIDIA GPU. Whatever cannot be installed from there comes from the usual index."""
    environment = {name: value for name, value in os.environ.items() if name != "FB_FAIRSEQ_TORCH"}
    record = tmp_path / "record"
    command = ["bash", "-c", TORCH.replace('"$2"', gpu), "recipe", str(REPOSITORY), gpu, str(record), str(tmp_path)]
    done = subprocess.run(command, env={**environment, **variables}, capture_output=True, text=True)
    assert done.returncode == 0 and done.stderr == "" and message in done.stdout and bool(message) == bool(done.stdout)
    asked = record.read_text() if record.exists() else ""
    assert asked == (f"torch>=2.4 torchaudio --index-url {index}\n" if index else "")
