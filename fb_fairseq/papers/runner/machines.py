"""On which machines and GPUs training runs: ``--nodes``, ``--node-rank`` and ``--rendezvous``, or Slurm's variables."""

import os
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from fb_fairseq.errors import UserError
from fb_fairseq.papers.runner.shell import Shell

RENDEZVOUS = re.compile(r"(.+):([1-9][0-9]{0,4})")


@dataclass
class Machines:
    """Where training runs."""

    nodes: int = 1  # number of machines
    node_rank: int = 0  # which one this is: 0 goes through all steps, the others only take part in training
    host: str = ""  # address of the first one
    port: int = 0  # of the next training; each has its own, as the first machine may still be closing the last one's
    gpus: int = 0  # of this machine
    hardware: str = ""  # their name, or that of the CPU

    @property
    def processes(self) -> int:
        """The number of training processes on all machines."""
        return max(self.gpus, 1) * self.nodes

    @property
    def cpu(self) -> list:
        """fairseq's option to train on the CPU, if there is no GPU."""
        return [] if self.gpus else ["--cpu"]

    def check_jobs(self, jobs: int | None) -> None:
        """Stop if several runs at a time would each use all GPUs."""
        if jobs and jobs > 1 and self.processes > 1:
            raise UserError(f"--jobs {jobs}: each run uses all GPUs; leave it out")

    def look(self, shell: Shell) -> None:
        """Find out what this machine has."""
        self.gpus, self.hardware = shell.look()
        where = "processes, one per GPU" if self.gpus else "process on the CPU"
        machines = f", on each of {self.nodes} machines" if self.nodes > 1 else ""
        shell.comment(f"On this machine, training runs as {max(self.gpus, 1)} {where}{machines}.")

    def describe(self, run: str) -> None:
        """Write down what a run is on, in RUN.hardware."""
        if not os.path.exists(f"{run}.hardware"):
            Path(f"{run}.hardware").write_text(f"{self.hardware}\n", encoding="utf-8")


def find_machines(
    nodes: int | None, node_rank: str | None, rendezvous: str | None, environment: Mapping[str, str] = os.environ
) -> Machines:
    """Read the options of several machines; without ``--nodes``, the variables of a Slurm step."""
    tasks = environment.get("SLURM_STEP_NUM_TASKS", "1")
    if nodes is None and tasks != "1":
        if tasks != environment.get("SLURM_STEP_NUM_NODES"):
            raise UserError(f"srun starts {tasks} tasks; start one per machine: srun --ntasks-per-node 1")
        nodes, node_rank = int(tasks), node_rank or environment.get("SLURM_NODEID")
        rendezvous = rendezvous or _slurm_rendezvous(environment)
    nodes = nodes or 1
    if nodes == 1:
        if node_rank or rendezvous:
            raise UserError("--node-rank, --rendezvous: only with --nodes 2 or more")
        return Machines()
    if not re.fullmatch("0|[1-9][0-9]{0,5}", node_rank or "") or int(node_rank) >= nodes:
        raise UserError(f"--node-rank {node_rank or 'is missing'}: give this machine's number, from 0 to {nodes - 1}")
    found = RENDEZVOUS.fullmatch(rendezvous or "")
    if not found or int(found[2]) > 65000:
        raise UserError(f"--rendezvous {rendezvous or 'is missing'}: give HOST:PORT of the machine of --node-rank 0")
    return Machines(nodes, int(node_rank), found[1], int(found[2]))


def _slurm_rendezvous(environment: Mapping[str, str]) -> str:
    command = ["scontrol", "show", "hostnames", environment.get("SLURM_STEP_NODELIST", "")]
    try:
        hosts = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
        return f"{hosts[0]}:{20000 + int(environment['SLURM_JOB_ID']) % 10000}"
    except (OSError, subprocess.CalledProcessError, LookupError, ValueError):
        raise UserError("scontrol failed; give --rendezvous HOST:PORT") from None
