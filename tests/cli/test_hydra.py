"""fairseq-hydra-train with the YAML files of the examples."""

import os
import re
import subprocess
import sys

import pytest
import torch

from tests.cli.fairseq_commands import PLUGIN, options, run
from tests.cli.parallel_text import preprocess
from tests.conftest import REPOSITORY

STREAMS = ["dataset.batch_size=8", "task.valid_streams=4"]


def hydra_train(yaml, data, save_dir, *overrides):
    folder, name = os.path.split(yaml)
    return subprocess.run(
        [os.path.join(os.path.dirname(sys.executable), "fairseq-hydra-train")]
        + ["--config-dir", str(REPOSITORY / "examples" / folder), "--config-name", name]
        + [f"common.user_dir={PLUGIN}", f"task.data={data}", f"checkpoint.save_dir={save_dir}", "common.cpu=true"]
        + ["optimization.max_update=4", "dataset.ignore_unused_valid_subsets=true", *overrides],
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(REPOSITORY)},
        cwd=save_dir.parent,
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_mistakes_are_one_line(byte_data, tmp_path):
    """hydra passes errors on; on Python 3.10 its own report fails."""
    for override, message in (
        ("model.attention_span=0", "--attention-span 0: "),
        (
            "model.attention_span=abc",
            "model.attention_span=abc: Value 'abc' could not be converted to Integer; FB_FAIR",
        ),
        ("optimization.lr=[-1]", "--lr .-1.0.: "),
    ):
        done = hydra_train("language_modeling/hydra/feedback_small", byte_data, tmp_path / "ck", override, *STREAMS)
        line = done.stderr.splitlines()[-1]
        assert done.returncode == 2 and re.match(f"fairseq-hydra-train: error: {message}", line), done.stderr
        assert "Traceback" not in done.stderr


@pytest.mark.parametrize("arch", ["feedback_transformer_lm", "feedback_transformer_lm_char_ptb"])
def test_language_model(byte_data, tmp_path, arch):
    """It trains; a named architecture, which fairseq would silently ignore, is refused with what to give instead."""
    done = hydra_train(
        "language_modeling/hydra/feedback_small",
        byte_data,
        tmp_path / "ck",
        *(f"model._name={arch}", *STREAMS),
    )
    output = done.stdout + done.stderr
    if arch == "feedback_transformer_lm":
        assert done.returncode == 0, output[-2000:]
        assert (tmp_path / "ck/checkpoint_last.pt").exists()
    else:
        assert done.returncode != 0 and "hydra-train cannot resolve named architectures; give" in output
        assert not (tmp_path / "ck/checkpoint_last.pt").exists()


def test_translation(tmp_path):
    """It trains, and some of its checkpoint's layers generate."""
    data = preprocess(tmp_path, joined_dictionary=True)
    done = hydra_train("translation/hydra/feedback_decoder_small", data, tmp_path / "ck", "dataset.max_tokens=300")
    assert done.returncode == 0, (done.stdout + done.stderr)[-2000:]
    saved = torch.load(tmp_path / "ck/checkpoint_last.pt", weights_only=True)
    assert saved["cfg"]["model"]["decoder_layers"] == 2 and "decoder" not in saved["cfg"]["model"]
    assert saved["cfg"]["model"]["decoder_embed_dim"] == 128, "the encoder's, as on a command line"
    assert saved["model"]["decoder.memory.layer_weights"].shape == (3,)
    values = dict(path=tmp_path / "ck/checkpoint_last.pt", cpu=True, num_workers=0, required_batch_size_multiple=1)
    values["model_overrides"] = "{'encoder_layers_to_keep': '0,2', 'decoder_layers_to_keep': '1'}"
    assert run("generate", data, *options(dict(values, beam=2, max_len_b=5))).count("\nH-") == 30
