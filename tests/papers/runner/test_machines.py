"""On which machines training runs."""

import pytest

from fb_fairseq.errors import UserError
from fb_fairseq.papers.runner.machines import find_machines

STEP = dict(NUM_TASKS="2", NUM_NODES="2", NODELIST="gpu[7-8]")
SLURM = {"SLURM_NODEID": "1", "SLURM_JOB_ID": "1230042", **{f"SLURM_STEP_{name}": STEP[name] for name in STEP}}


@pytest.fixture(autouse=True)
def scontrol(tmp_path, monkeypatch):
    program = tmp_path / "scontrol"
    program.write_text("#!/bin/sh\necho gpu7\necho gpu8\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))


@pytest.mark.parametrize(
    "options,slurm,found",
    [
        ((None, None, None), {}, (1, 0, "", 0)),
        ((2, "0", "a.b:29500"), {}, (2, 0, "a.b", 29500)),
        ((2, "1", "::1:29500"), {}, (2, 1, "::1", 29500)),
        ((None, None, None), SLURM, (2, 1, "gpu7", 20042)),
        ((None, None, "a:29500"), {**SLURM, "SLURM_NODEID": "0"}, (2, 0, "a", 29500)),
        ((1, None, None), SLURM, (1, 0, "", 0)),
    ],
)
def test_find_machines(options, slurm, found):
    """From the options, or from Slurm's variables in a step with one task per machine."""
    machines = find_machines(*options, environment=slurm)
    assert (machines.nodes, machines.node_rank, machines.host, machines.port) == found


@pytest.mark.parametrize(
    "options,slurm,message",
    [
        ((None, None, None), {**SLURM, "SLURM_STEP_NUM_TASKS": "4"}, "srun starts 4 tasks; start one per machine"),
        ((2, "1", "a:70000"), {}, "--rendezvous a:70000: give HOST:PORT"),
        ((2, "0", None), {}, "--rendezvous is missing: give HOST:PORT"),
        ((2, "01", "a:29500"), {}, "--node-rank 01: give this machine's number, from 0 to 1"),
        ((2, "2", "a:29500"), {}, "--node-rank 2: give this machine's number"),
        ((2, None, "a:29500"), {}, "--node-rank is missing: give this machine's number"),
        ((None, "0", None), {}, "--node-rank, --rendezvous: only with --nodes 2"),
    ],
)
def test_mistakes(options, slurm, message):
    with pytest.raises(UserError, match=message):
        find_machines(*options, environment=slurm)
