"""Models with their code, in a process that has no fb_fairseq."""

import os
import subprocess
import sys

import pytest
import torch

from fb_fairseq.commands.export.code import add_code, rewritten
from fb_fairseq.errors import UserError

LOAD = """
import sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("fairseq", "fb_fairseq", "triton"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Refuse())
import torch
from transformers import utils
for module in (utils, utils.import_utils):  # a torchaudio of another CUDA version cannot be imported, as Trainer does
    module.is_torchaudio_available = lambda: False
from transformers import AutoModelForCausalLM, AutoModelForSeq2SeqLM, Trainer
for name, kind in {"lm": AutoModelForCausalLM, "translator": AutoModelForSeq2SeqLM}.items():
    model, inputs = kind.from_pretrained(name, trust_remote_code=True), torch.load(name + "/inputs.pt")
    with torch.no_grad():
        torch.save(model(**inputs).logits, name + "/found.pt")
    model.generate(**inputs, max_new_tokens=3)
    if name == "lm":
        smoothed = model(**inputs, labels=inputs["input_ids"], label_smoothing=0.1).loss
        print(model.accepts_loss_kwargs and hasattr(Trainer.compute_loss, "__wrapped__") and bool(smoothed > 0))
    model.save_pretrained(name + "-again")
"""


@pytest.mark.not_fast
def test_models_load_without_the_package(tmp_path):
    """They compute the same, generate, and are saved with their code."""
    pytest.importorskip("transformers")
    from tests.transformers import models, test_seq2seq

    tokens = torch.arange(4, 20).view(2, 8)
    inputs = {"lm": {"input_ids": tokens}}
    inputs["translator"] = {"input_ids": tokens, "decoder_input_ids": torch.tensor([[2, 5], [2, 6]])}
    made = {"lm": models.build("feedback"), "translator": test_seq2seq.build("pre-norm")}
    for name, model in made.items():
        (tmp_path / name).mkdir()
        add_code(model, str(tmp_path / name))
        model.save_pretrained(tmp_path / name)
        torch.save(inputs[name], tmp_path / name / "inputs.pt")
    environment = {**os.environ, "HF_HOME": str(tmp_path / "cache"), "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    environment.pop("PYTHONPATH", None)
    pipes = dict(capture_output=True, text=True, timeout=240)
    done = subprocess.run([sys.executable, "-c", LOAD], cwd=tmp_path, env=environment, **pipes)
    assert done.returncode == 0 and done.stdout.split() == ["True"], done.stderr[-2000:]
    assert "cache_position" not in done.stderr, "transformers warns of it"
    for name, model in made.items():
        with torch.no_grad():
            wanted = model.eval()(**inputs[name]).logits
        assert torch.allclose(torch.load(tmp_path / name / "found.pt"), wanted, atol=1e-5)
        code, again = ({path.name for path in (tmp_path / folder).glob("*.py")} for folder in (name, f"{name}-again"))
        assert "fb_fairseq_ops_feedback_loops.py" in code and code <= again


def test_imports_are_relative():
    source = """def f():
    from fb_fairseq.errors import (
        UserError,
        flag as option,
    )
    from fb_fairseq.ops import layers, attention as a  # a comment
    import triton
"""
    text, needed = rewritten(source)
    assert needed == ["fb_fairseq.errors"] * 2 + ["fb_fairseq.ops.layers", "fb_fairseq.ops.attention"]
    assert [line.strip() for line in text.splitlines() if line.strip()] == [
        "def f():",
        "from .fb_fairseq_errors import UserError",
        "from .fb_fairseq_errors import flag as option",
        "from .fb_fairseq_ops_layers import __doc__ as _  # for transformers to find the file",
        "from . import fb_fairseq_ops_layers as layers",
        "from .fb_fairseq_ops_attention import __doc__ as _  # for transformers to find the file",
        "from . import fb_fairseq_ops_attention as a",
        "try:",
        "import triton",
        "except ImportError:",
        "raise",
    ]
    compile(text, "code", "exec")
    with pytest.raises(UserError, match="^--with-code: cannot copy 'import fb_fairseq.ops'"):
        rewritten("import fb_fairseq.ops")
