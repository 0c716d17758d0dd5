"""Each patch corrects what it is for."""

import argparse
import copy
import logging
import os
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from fb_fairseq import patches
from fb_fairseq.errors import UserError
from fb_fairseq.patches import libraries, processes
from fb_fairseq.patches.error_lines import one_line
from tests.conftest import REPOSITORY


@pytest.mark.parametrize("patch", patches.PATCHES, ids=lambda patch: patch.__name__)
def test_docstrings_say_when_a_patch_can_go(patch):
    """Together with which version it affects; or neither, where that is the rule of the package's docstring."""
    assert patch.__name__.startswith("patch_") and "none does yet" in patches.__doc__
    assert ("Affects: fairseq" in patch.__doc__) == ("Remove when: " in patch.__doc__)


def test_overrides():
    """Names of no option are refused."""
    from fairseq import checkpoint_utils
    from omegaconf import OmegaConf

    import fb_fairseq.models  # noqa: F401
    import fb_fairseq.tasks  # noqa: F401

    model = {"_name": "feedback_transformer_lm", "decoder_layers": 3}
    task = {"_name": "streaming_lm", "data": "a", "valid_streams": 8}
    saved = {"model": model, "task": task, "bpe": None, "common": {"seed": 1}}
    cfg = OmegaConf.create(saved)
    OmegaConf.set_struct(cfg, True)
    overrides = {"data": "b", "valid_streams": 1, "decoder_layers": 2, "bpe_codes": "a file", "seed": 2}
    checkpoint_utils.overwrite_args_by_name(cfg, overrides)
    assert cfg.model == {**model, "decoder_layers": 2} and cfg.task.data == "b" and cfg.task.valid_streams == 1
    for given in ({"x": 1}, {"path": "of fairseq-validate", "model_overrides": repr({"x": 1}), "x": 1}):
        with pytest.raises(UserError, match="--model-overrides: .* an option 'x'; leave it out"):
            checkpoint_utils.overwrite_args_by_name(cfg, given)
    other = OmegaConf.create({**saved, "model": {"_name": "transformer_lm"}})
    checkpoint_utils.overwrite_args_by_name(other, {"x": 1})  # fairseq's own models are its own affair


def test_copies_of_configurations():
    """A part's copy is equal, changes apart from it, and resolves what it refers to, alone or within the whole."""
    from omegaconf import OmegaConf

    cfg = OmegaConf.create({"a": {"b": 1, "c": "${d}", "e": [1, {"f": "${a.b}"}]}, "d": 5})
    whole = copy.deepcopy(cfg)
    counted = {}
    part = copy.deepcopy(cfg.a, counted)
    assert counted.get(id(cfg), cfg) is cfg, "the whole is not copied with its part"
    assert whole == cfg and part == cfg.a and whole.a.c == part.c == 5 and whole.a.e[1].f == 1
    whole.a.b, whole.d, part.e[0] = 2, 6, 9
    assert whole.a.e[1].f == 2 and whole.a.c == 6 and cfg.a.b == 1 and cfg.a.c == 5 and cfg.a.e[0] == 1
    cfg.g = cfg.a
    cfg.g.b = 7
    assert cfg.a.b == 1 and cfg.g._get_parent() is cfg and copy.deepcopy([cfg, cfg.a])[0].g.b == 7


def fail_as_a_process(rank):
    raise UserError("--option x: wrong\nname")


@pytest.mark.not_fast
def test_an_error_of_a_spawned_process_is_one_line():
    """fairseq starts a process for each GPU with ``torch.multiprocessing.spawn``, which raises their tracebacks."""
    with pytest.raises(Exception, match="Traceback") as error:
        torch.multiprocessing.spawn(fail_as_a_process, nprocs=1)
    assert one_line(error.value).startswith("--option x: wrong")


def test_length_buckets_work_on_this_numpy():
    """fairseq reads ``np.compat.long``."""
    from fairseq.data import TokenBlockDataset

    items = [torch.tensor([5, 6, 2]), torch.tensor([7, 2])]
    blocks = TokenBlockDataset(items, [3, 2], block_size=None, pad=1, eos=2, break_mode="eos")
    assert [block.tolist() for block in blocks] == [[5, 6, 2], [7, 2]]


def test_another_plugins_numpy_compat_is_completed(monkeypatch):
    monkeypatch.setattr(np, "compat", SimpleNamespace(unicode=str), raising=False)
    libraries.patch_numpy_long()
    assert np.compat.long is int and np.compat.unicode is str


def test_encoder_stays_off_the_fused_path():
    """A loaded post-norm encoder layer reads a left-padded batch of two sentences in evaluation."""
    from fairseq.modules import TransformerEncoderLayer

    sizes = dict(encoder_embed_dim=8, encoder_attention_heads=2, encoder_ffn_embed_dim=16)
    dropout = dict.fromkeys(("dropout", "attention_dropout", "activation_dropout"), 0.0)
    args = argparse.Namespace(**sizes, **dropout, encoder_normalize_before=False)
    layer = TransformerEncoderLayer(args)
    layer.load_state_dict(layer.state_dict())
    layer.eval()
    with torch.no_grad():
        out = layer(torch.randn(4, 2, 8), encoder_padding_mask=torch.tensor([[True, False, False, False], [False] * 4]))
    assert out.shape == (4, 2, 8) and out[1:].isfinite().all()


@pytest.mark.parametrize("size,blocked", [(1, [4, 5, 6]), (2, [5]), (3, [])])
def test_repeated_ngrams_are_blocked(size, blocked):
    """Generated so far: </s> 6 4 5 4. The rest of the buffer is padding."""
    from fairseq.ngram_repeat_block import NGramRepeatBlock

    tokens = torch.tensor([[2, 6, 4, 5, 4, 1, 1]])
    lprobs = NGramRepeatBlock(size, use_extension=False)(tokens, torch.zeros(1, 8), bsz=1, beam_size=1, step=4)
    assert lprobs[0].isinf().nonzero().flatten().tolist() == blocked


def test_bleu_of_texts_without_words():
    """fairseq's C++ would count a lone ``</s>`` as a word. (The figures are sacreBLEU's, without tokenisation.)"""
    from fairseq.scoring.bleu import BleuConfig, Scorer

    text, end, nothing = (torch.tensor(tokens, dtype=torch.int) for tokens in ([4, 5, 6, 7, 2], [2], []))
    scorer = Scorer(BleuConfig(pad=1, eos=2, unk=3))
    for empty in (end, nothing):
        scorer.reset()
        scorer.add(empty, empty)
        assert scorer.result_string() == "BLEU4 = 0.00 (syslen=0, reflen=0)"
        scorer.add(text, empty)
        assert scorer.result_string() == "BLEU4 = 0.00 (syslen=0, reflen=4)" and scorer.score() == 0
        scorer.add(text, text)
        assert "BLEU4 = 36.79, 100.0/100.0/100.0/100.0 " in scorer.result_string()
        scorer.add(empty, text)
        assert (
            "BLEU4 = 50.00, 50.0/50.0/50.0/50.0 (BP=1.000, ratio=1.000, syslen=8, reflen=8)" in scorer.result_string()
        )


def test_log_file_is_opened_once(tmp_path):
    from fairseq.logging import progress_bar

    before = list(progress_bar.logger.handlers)
    for _ in range(3):
        progress_bar.progress_bar([], log_format="none", log_file=str(tmp_path / "log"))
    opened = [handler for handler in progress_bar.logger.handlers if handler not in before]
    for handler in opened:
        progress_bar.logger.removeHandler(handler)
        handler.close()
    assert len(opened) == 1 and isinstance(opened[0], logging.FileHandler)


def test_processes_of_torchrun_form_one_group_without_gpus(monkeypatch):
    from fairseq.distributed import utils

    for name, value in dict(MASTER_ADDR="localhost", MASTER_PORT="1", WORLD_SIZE="2", RANK="1").items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    cfg = SimpleNamespace(distributed_init_method=None, distributed_world_size=1, tpu=False)
    utils.infer_init_method(cfg)
    assert (cfg.distributed_world_size, cfg.distributed_rank, cfg.distributed_init_method) == (2, 1, "env://")
    assert cfg.distributed_no_spawn


def test_other_programs_variables_are_no_torchrun(monkeypatch):
    """A cluster's scheduler sets some of them."""
    for name in ("MASTER_ADDR", "MASTER_PORT", "RANK"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("WORLD_SIZE", "2")
    cfg, seen = SimpleNamespace(distributed_init_method=None, distributed_world_size=1), []
    processes._infer_init_method(seen.append, cfg)
    assert seen == [cfg] and cfg.distributed_world_size == 1


@pytest.mark.not_fast
def test_no_warnings_that_a_user_cannot_act_on(tmp_path):
    """Whatever follows the loading of the plugin; PyTorch's warning before that is fairseq's."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONWARNINGS"}
    command = [os.path.join(os.path.dirname(sys.executable), "fairseq-train"), str(tmp_path), "--batch-size", "1"]
    command += ["--user-dir", str(REPOSITORY / "fb_fairseq"), "--task", "streaming_lm", "--criterion", "lm_loss"]
    command += ["--arch", "feedback_transformer_lm"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 2 and "dict.txt" in done.stderr
    warned = [line for line in done.stderr.splitlines() if "Warning: " in line and "torch.jit.script" not in line]
    assert warned == []


def test_a_model_is_told_of_updates():
    """By fairseq's own tasks; fairseq's own models, which do not ask for it, are left alone."""
    from fairseq.tasks import FairseqTask

    calls = []

    class Stock:
        pass

    class Ours(Stock):
        def after_optimizer_step(self, optimizer):
            calls.append(optimizer)

    optimizer = SimpleNamespace(step=lambda: calls.append("step"))
    for model in (Stock(), Ours()):
        FairseqTask(None).optimizer_step(optimizer, model=model, update_num=7)
    assert calls == ["step", "step", optimizer]


@pytest.mark.parametrize("device,places", [("cpu", (None, None)), ("meta", ([1], 1))])
def test_ddp_names_a_gpu_only_to_modules_on_one(device, places):
    module = torch.nn.Linear(2, 2, device=device)
    given = processes._distribute(lambda **given: given, module, device_ids=[1], output_device=1, bucket_cap_mb=2)
    assert given == dict(module=module, device_ids=places[0], output_device=places[1], bucket_cap_mb=2)
