"""fairseq-hydra-train with the YAML files of the examples."""

import os
import re
import subprocess
import sys

from tests.cli.fairseq_commands import PLUGIN
from tests.conftest import REPOSITORY

STREAMS = ["dataset.batch_size=8", "task.valid_streams=4"]


def hydra_arguments(yaml, data, save_dir, *overrides):
    folder, name = os.path.split(yaml)
    return [
        "--config-dir",
        REPOSITORY / "examples" / folder,
        "--config-name",
        name,
        f"common.user_dir={PLUGIN}",
        f"task.data={data}",
        f"checkpoint.save_dir={save_dir}",
        "common.cpu=true",
        "optimization.max_update=4",
        "dataset.ignore_unused_valid_subsets=true",
        *overrides,
    ]


LANGUAGE_MODEL = "language_modeling/hydra/feedback_small"


def test_mistakes_are_one_line(commands, byte_data, tmp_path):
    """hydra passes errors on to our one line. (On Python 3.10, its own report of errors crashes.) A named architecture,
    which fairseq would silently ignore, is refused with what to give instead."""
    for override, message in (
        ("model.attention_span=0", "--attention-span 0: "),
        ("model._name=feedback_transformer_lm_char_ptb", ".*hydra-train cannot resolve named architectures; give"),
    ):
        arguments = hydra_arguments(LANGUAGE_MODEL, byte_data, tmp_path / "ck", override, *STREAMS)
        result = commands.run("fairseq-hydra-train", *arguments, folder=tmp_path)
        assert result.status == 2 and re.match(f"fairseq-hydra-train: error: {message}", result.errors[-1])
        assert not any("Traceback" in line for line in result.errors)
        assert not (tmp_path / "ck/checkpoint_last.pt").exists()


def test_language_model(byte_data, tmp_path):
    """In a process that has not loaded the plugin yet."""
    program = os.path.join(os.path.dirname(sys.executable), "fairseq-hydra-train")
    arguments = hydra_arguments(LANGUAGE_MODEL, byte_data, tmp_path / "ck", *STREAMS)
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(REPOSITORY)}
    pipes = dict(capture_output=True, text=True, timeout=120)
    done = subprocess.run([program, *map(str, arguments)], env=environment, cwd=tmp_path, **pipes)
    assert done.returncode == 0, (done.stdout + done.stderr)[-2000:]
    assert (tmp_path / "ck/checkpoint_last.pt").exists()
