"""fairseq-hydra-train with the YAML file of the examples."""

import os
import subprocess
import sys

import pytest

from tests.cli.fairseq_commands import PLUGIN
from tests.conftest import REPOSITORY


def hydra_train(data, save_dir, *overrides):
    return subprocess.run(
        [os.path.join(os.path.dirname(sys.executable), "fairseq-hydra-train")]
        + ["--config-dir", str(REPOSITORY / "examples/language_modeling/hydra"), "--config-name", "feedback_small"]
        + [f"common.user_dir={PLUGIN}", f"task.data={data}", f"checkpoint.save_dir={save_dir}", "common.cpu=true"]
        + ["optimization.max_update=4", "dataset.batch_size=8", "task.valid_streams=4"]
        + ["dataset.ignore_unused_valid_subsets=true", *overrides],
        env={**os.environ, "HYDRA_FULL_ERROR": "1", "OMP_NUM_THREADS": "1", "PYTHONPATH": str(REPOSITORY)},
        cwd=save_dir.parent,
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.mark.parametrize("arch", ["feedback_transformer_lm", "feedback_transformer_lm_char_ptb"])
def test_yaml_file(byte_data, tmp_path, arch):
    """It trains; a named architecture, which fairseq would silently ignore, is refused with what to give instead."""
    done = hydra_train(byte_data, tmp_path / "ck", f"model._name={arch}")
    output = done.stdout + done.stderr
    if arch == "feedback_transformer_lm":
        assert done.returncode == 0, output[-2000:]
        assert (tmp_path / "ck/checkpoint_last.pt").exists()
    else:
        assert done.returncode != 0 and "hydra-train cannot resolve named architectures; give" in output
        assert not (tmp_path / "ck/checkpoint_last.pt").exists()
