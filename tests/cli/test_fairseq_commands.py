"""fairseq's commands through ``fb-fairseq``, without ``--user-dir``, from a folder that is not the clone."""

import os
import subprocess
import sys

import pytest

from tests.cli.fairseq_commands import training_arguments
from tests.cli.own_commands import refused
from tests.conftest import REPOSITORY

SCRIPT = "import sys; from fb_fairseq.commands import main; sys.exit(main())"  # as pip writes fb-fairseq


def test_the_plugin_is_loaded(byte_data, tmp_path):
    """In a new process, for the model's names and for mistakes in one line."""
    arguments = training_arguments(byte_data, "ck", restore_file="x.pt")
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(REPOSITORY)}
    command = [sys.executable, "-c", SCRIPT, "train", *map(str, arguments)]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 2, (done.stdout + done.stderr)[-2000:]
    assert done.stderr.splitlines()[-1].startswith("fairseq-train: error: --restore-file x.pt: no such file")


@pytest.mark.parametrize("words", ["fb-fairseq train", "fb-fairseq fairseq_train", "python -m fb_fairseq train"])
def test_the_command_server_runs_them_so_too(commands, tmp_path, words):
    """With the patches of errors, in every spelling."""
    result = commands.run(*words.split(), *training_arguments(tmp_path, "ck"), folder=tmp_path)
    refused(result, "dict.txt: no such file")
