"""The functions that the recipes share, examples/steps.sh."""

import os
import subprocess

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
        (["", "", ""], {**SLURM, "SLURM_STEP_NUM_TASKS": "4"}, "error: srun starts 4 tasks; start one on each machine"),
        (["2", "1", "a:70000"], {}, "error: --rendezvous a:70000: give HOST:PORT"),
        (["2", "01", "a:29500"], {}, "error: --node-rank 01: give the number of this machine, from 0 to 1"),
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
