"""fairseq-train on streams: it learns, counts every target once, and says one loss everywhere."""

import gzip
import re
from unittest import mock

import fairseq_cli.eval_lm
import pytest
import torch

from fb_fairseq.commands import preprocess_bytes
from fb_fairseq.errors import UserError
from fb_fairseq.ops.cuda_graphs import log_once
from fb_fairseq.ops.feedback.loops import log_choice
from tests.cli.checkpoints import eval_lm, load, loss_by_hand
from tests.cli.conftest import made_up_text
from tests.cli.fairseq_commands import (
    PLUGIN,
    assert_same_parameters,
    json_logs,
    options,
    run,
    train,
    train_in_two_processes,
    training_arguments,
)
from tests.conftest import on_ci

MODELS = ["feedback_transformer_lm", on_ci("relative_transformer_lm")]


@pytest.mark.on_ci
@pytest.mark.parametrize("arch", MODELS)
def test_enwik8(shared_data, tmp_path, arch):
    """A minute part of it: a model learns, and its loss is that by hand."""
    with gzip.open(shared_data / "enwik8-prefix/enwik8.first3600000.gz") as file:
        text = file.read(60_000)
    preprocess_bytes.binarise({"train": [text[:-5000]], "valid": [text[-5000:]]}, str(tmp_path), append_eos=False)
    sizes = dict(batch_size=16, tokens_per_sample=16, attention_span=32, decoder_embed_dim=32, decoder_ffn_embed_dim=64)
    logged = json_logs(train(tmp_path, tmp_path / "ck", arch=arch, max_update=100, **sizes), "valid")[-1]
    bits, n = loss_by_hand(tmp_path / "ck/checkpoint_last.pt", tmp_path, "valid", 3)
    assert n == 5000 and float(logged["valid_total_bits"]) == pytest.approx(bits, rel=1e-6)
    assert float(logged["valid_bpb"]) < 5.2


@pytest.mark.parametrize("arch", MODELS)
def test_one_loss_in_training_evaluation_and_by_hand(byte_data, tmp_path, arch):
    log = train(byte_data, tmp_path, arch=arch, max_epoch=2, valid_subset="valid,valid1", no_epoch_checkpoints=True)
    losses = [float(entry["loss"]) for entry in json_logs(log, "train_inner")]
    assert losses[-1] < losses[0] - 1.5, "it learns"
    checkpoint = tmp_path / "checkpoint_last.pt"
    for split in ("valid", "valid1"):
        logged = json_logs(log, split)[-1]
        bits, tokens = loss_by_hand(checkpoint, byte_data, split, 3)
        assert float(logged[f"{split}_total_tokens"]) == tokens
        assert float(logged[f"{split}_total_bits"]) == pytest.approx(bits, rel=1e-6)
        documents = {"valid": 2, "valid1": 1}[split]
        assert float(logged[f"{split}_bpb"]) == pytest.approx(bits / (tokens - documents), abs=6e-5)
    results, command = [], fairseq_cli.eval_lm
    keep = lambda f=command.eval_lm, **kw: results.append(f(**kw)) or results[-1]  # noqa: E731
    with mock.patch.object(command, "eval_lm", side_effect=keep):
        eval_lm(byte_data, checkpoint, gen_subset="valid", valid_streams=3, tokens_per_sample=7)
    bits, tokens = loss_by_hand(checkpoint, byte_data, "valid", 3)
    assert float(results[0]["loss"]) == pytest.approx(bits / tokens, rel=1e-6)


def test_validation_on_the_training_split(byte_data, tmp_path):
    """Is validation: of --valid-streams, without BPTT warm-up; one loss in all three commands. Training ignores it."""
    warm_up = dict(tokens_per_sample=8, bptt_warmup_tokens=2, bptt_warmup_iterations=4, max_update=20)
    log = train(byte_data, tmp_path, valid_subset="valid,train", validate_interval_updates=9, **warm_up)
    train(byte_data, tmp_path / "alone", disable_validation=True, **warm_up)
    checkpoint = tmp_path / "checkpoint_last.pt"
    assert_same_parameters(tmp_path / "alone/checkpoint_last.pt", checkpoint)
    bits, tokens = loss_by_hand(checkpoint, byte_data, "train", 3)
    logged = [entry for entry in json_logs(log, "train") if "train_lr" not in entry][-1]
    assert float(logged["train_total_tokens"]) == tokens == 3001
    assert float(logged["train_total_bits"]) == pytest.approx(bits, rel=1e-6)
    again = options(dict(task="streaming_lm", path=checkpoint, valid_subset="train", valid_streams=3, cpu=True))
    validated = json_logs(run("validate", byte_data, *again, "--log-format", "json"), "train")[-1]
    assert float(validated["train_total_bits"]) == pytest.approx(bits, rel=1e-6)
    evaluated = eval_lm(byte_data, checkpoint, gen_subset="train", valid_streams=3)
    assert float(re.search("Loss \\(base 2\\): ([0-9.]+)", evaluated)[1]) == pytest.approx(bits / tokens, abs=6e-5)


def test_epoch_counts_every_target_once(byte_data, tmp_path):
    """3001 tokens in 8 streams fit no block of 7."""
    log = train(byte_data, tmp_path, max_epoch=1, update_freq=2, disable_validation=True, no_save=True)
    (epoch,) = json_logs(log, "train")
    assert float(epoch["train_total_tokens"]) == 3001 and float(epoch["train_total_bytes"]) == 3000


@pytest.mark.on_ci
def test_stock_criterion_and_stock_task(byte_data, tmp_path):
    ours = train(byte_data, tmp_path / "a", max_update=30)
    stock = train(byte_data, tmp_path / "b", max_update=30, criterion="cross_entropy")
    assert json_logs(ours, "valid")[-1]["valid_loss"] == json_logs(stock, "valid")[-1]["valid_loss"]
    assert_same_parameters(tmp_path / "a/checkpoint_last.pt", tmp_path / "b/checkpoint_last.pt")
    samples = train(
        byte_data, tmp_path / "c", max_update=30, task="language_modeling", valid_streams=None, tokens_per_sample=40
    )
    assert float(json_logs(samples, "valid")[-1]["valid_loss"]) < 6
    log = eval_lm(byte_data, tmp_path / "c/checkpoint_last.pt", gen_subset="valid", task=None)
    assert "Loss (base 2)" in log


def test_buffers_change_nothing(commands, byte_data, tmp_path):
    """fairseq reads ahead in a thread. (Worker processes are never started: --num-workers has no effect.)"""
    train(byte_data, tmp_path / "a", max_update=20, data_buffer_size=0)
    arguments = training_arguments(byte_data, tmp_path / "b", max_update=20, data_buffer_size=10, num_workers=2)
    assert commands.run("fairseq-train", *arguments, "--user-dir", PLUGIN).status == 0
    assert_same_parameters(tmp_path / "a/checkpoint_last.pt", tmp_path / "b/checkpoint_last.pt")


def test_validation_leaves_training_alone(byte_data, tmp_path):
    """Validating in mid-epoch, on two subsets, changes neither memory nor parameters."""
    train(byte_data, tmp_path / "a", max_update=40, disable_validation=True)
    train(byte_data, tmp_path / "b", max_update=40, validate_interval_updates=7, valid_subset="valid,valid1")
    assert_same_parameters(tmp_path / "a/checkpoint_last.pt", tmp_path / "b/checkpoint_last.pt")


def test_a_block_run_twice_changes_nothing(byte_data, tmp_path, monkeypatch):
    """As after a gradient overflow or a lack of memory: the second run starts from the same state."""
    from fb_fairseq.tasks.streaming_lm import StreamingLMTask

    train(byte_data, tmp_path / "a", max_update=30, disable_validation=True)
    step = StreamingLMTask.train_step

    def twice(self, sample, model, criterion, optimizer, *args, **kwargs):
        step(self, sample, model, criterion, optimizer, *args, **kwargs)
        optimizer.zero_grad()
        return step(self, sample, model, criterion, optimizer, *args, **kwargs)

    monkeypatch.setattr(StreamingLMTask, "train_step", twice)
    train(byte_data, tmp_path / "b", max_update=30, disable_validation=True)
    assert_same_parameters(tmp_path / "a/checkpoint_last.pt", tmp_path / "b/checkpoint_last.pt")


def test_number_of_streams_in_evaluation(byte_data, tmp_path):
    """``--batch-size`` of fairseq-validate and fairseq-eval-lm is ``--valid-streams``, and so is ``--batch-size-valid``
    in training. fairseq-validate needs none of them: the checkpoint has its own."""
    trained = train(byte_data, tmp_path, max_update=4, batch_size_valid=3, valid_streams=None)
    values = dict(task="streaming_lm", path=tmp_path / "checkpoint_last.pt", cpu=True, tokens_per_sample=7)
    two, same, three = dict(batch_size=2), dict(valid_streams=2), dict(valid_streams=3)
    validated = [run("validate", byte_data, *options({**values, **change})) for change in (two, same, three, {})]
    bits = [re.findall(r"total_bits\W+([\d.]+)", log)[-1] for log in validated]
    assert bits[0] == bits[1] != bits[2] == bits[3]
    assert float(bits[3]) == pytest.approx(float(json_logs(trained, "valid")[-1]["valid_total_bits"]), abs=0.01)
    evaluated = [eval_lm(byte_data, values["path"], **change) for change in (two, same, three)]
    losses = [re.search(r"Loss \(base 2\): ([\d.]+)", log)[1] for log in evaluated]
    assert losses[0] == losses[1] != losses[2]


def test_memory_is_carried_from_block_to_block(byte_data, tmp_path):
    """In blocks of one step nothing but the carried memory tells of the past."""
    log = train(byte_data, tmp_path, max_epoch=2, tokens_per_sample=1, batch_size=60, disable_validation=True)
    unigram = 4.1  # bits a byte of this text without context: 4.05
    assert float(json_logs(log, "train")[-1]["train_loss"]) < unigram - 0.3


def test_sharded_data_gives_one_shard_an_epoch(byte_data, tmp_path):
    other = tmp_path / "other"
    preprocess_bytes.binarise({"train": [made_up_text(500, 9)]}, str(other), append_eos=False)
    log = train(f"{byte_data}:{other}", tmp_path / "ck", max_epoch=3, no_epoch_checkpoints=True)
    assert [float(entry["train_total_tokens"]) for entry in json_logs(log, "train")] == [3001, 500, 3001]


@pytest.mark.slow
def test_more_processes_than_validation_streams(commands, byte_data, tmp_path):
    """The process without a stream takes part with a dummy batch, and nothing is counted twice."""
    changes = dict(max_update=4, valid_streams=1, batch_size=2)
    output = train_in_two_processes(commands, byte_data, tmp_path / "two", **changes)
    assert float(json_logs(output, "valid")[-1]["valid_total_tokens"]) == 400


def test_layers_to_keep_selects_memory_weights_too(byte_data, tmp_path):
    train(byte_data, tmp_path, max_update=3, decoder_layers=3, decoder_layerdrop=0.5)
    evaluate = lambda kept: eval_lm(
        byte_data, tmp_path / "checkpoint_last.pt", model_overrides=f"{{'decoder_layers_to_keep': '{kept}'}}"
    )
    assert "Loss (base 2)" in evaluate("0,2")
    with pytest.raises(UserError, match="--decoder-layers-to-keep.*0 to 2"):
        evaluate("0,3")


def test_best_checkpoint_by_another_measure(byte_data, tmp_path):
    """That it is tried out before training changes nothing else."""
    for metric in ("loss", "bpb"):
        train(byte_data, tmp_path / metric, max_update=4, dropout=0.1, best_checkpoint_metric=metric)
    paths = [tmp_path / metric / "checkpoint_last.pt" for metric in ("loss", "bpb")]
    assert_same_parameters(*paths)
    loss, bpb = (torch.load(path)["extra_state"]["best"] for path in paths)
    assert loss != bpb == pytest.approx(loss, rel=0.05)


@pytest.mark.on_ci
@pytest.mark.parametrize("arch", ["feedback_transformer_lm", pytest.param("all_attention_lm", marks=pytest.mark.slow)])
def test_layers_to_keep_in_fine_tuning(commands, byte_data, tmp_path, arch):
    """The new checkpoint says what it holds: it evaluates, exports, and the same command resumes."""
    reset = dict(reset_optimizer=True, reset_dataloader=True, reset_lr_scheduler=True, reset_meters=True)
    full, pruned, path = tmp_path / "full", tmp_path / "pruned", tmp_path / "pruned/checkpoint_last.pt"
    run = dict(arch=arch, decoder_layers=3, disable_validation=True)
    kept = dict(run, decoder_layers_to_keep="0,2")
    train(byte_data, full, **run, max_update=2)
    with pytest.raises(UserError, match="its optimizer had other parameters; give --reset-optimizer"):
        train(byte_data, pruned, **kept, max_update=4, restore_file=full / "checkpoint_last.pt")
    train(byte_data, pruned, **kept, **reset, max_update=2, restore_file=full / "checkpoint_last.pt")
    cfg = torch.load(path, weights_only=True)["cfg"]["model"]
    assert (cfg["decoder_layers"], cfg["decoder_layers_to_keep"]) == (2, None)
    assert "resuming at update 2" in train(byte_data, pruned, **kept, max_update=4)
    evaluation = ["--user-dir", PLUGIN, "--task", "streaming_lm", "--cpu", "--gen-subset", "valid1", "--path"]
    train(byte_data, tmp_path / "new", **kept, max_update=2)  # without a checkpoint: a model of two layers
    assert "resuming at update 2" in train(byte_data, tmp_path / "new", **kept, max_update=4)
    for checkpoint in (path, tmp_path / "new/checkpoint_last.pt"):
        assert commands.run("fairseq-eval-lm", byte_data, *evaluation, checkpoint).status == 0
        assert commands.run("fb-fairseq", "export", checkpoint, "--to", checkpoint.parent / "exported").status == 0


def test_named_architecture(byte_data, tmp_path):
    """Trained, resumed, evaluated: given options win over the preset's, and stay."""
    sizes = dict(arch="feedback_transformer_lm_random_walk", decoder_attention_heads=2, attention_span=9)
    train(byte_data, tmp_path, max_update=4, **sizes)
    train(byte_data, tmp_path, max_update=8, **sizes)
    model, _ = load(tmp_path / "checkpoint_last.pt", byte_data)
    options = model.decoder.options
    assert (options.attention_span, options.decoder_layers, options.attention_dropout) == (9, 2, 0.2)
    assert options.memory_projections == "per-layer"
    log = eval_lm(byte_data, tmp_path / "checkpoint_last.pt", gen_subset="valid1")
    assert "Loss (base 2)" in log


def test_step_loops_train_alike(byte_data, tmp_path):
    """Each says once what runs, and what runs instead where there is no GPU."""
    losses, logs = {}, {}
    for name, (changes, *lines) in {
        "reference": ({}, "step loop: reference (asked for by --step-loop)"),
        "auto": ({}, "step loop: auto (cpp on a CPU where it can be compiled, triton on a GPU, reference elsewhere)"),
        "cpp": ({}, "step loop: cpp (asked for by --step-loop)"),
        "triton": (
            {"step_loop_recompute": True},
            "step loop: triton (asked for by --step-loop)",
            "triton: it does not run on cpu; the reference runs",
        ),
        "parallel": ({}, "step loop: parallel (asked for by --step-loop)"),
        "two passes": (
            {"step_loop": "parallel", "parallel_passes": 2},
            "--parallel-passes 2: training is approximate; validation and evaluation are exact",
        ),
    }.items():
        for cached in (log_choice, log_once):  # once a process
            cached.cache_clear()
        changes = {"step_loop": name, "max_update": 4, "no_save": True, "log_interval": 1, **changes}
        logs[name] = train(byte_data, tmp_path / name, **changes)
        losses[name] = [float(entry["loss"]) for entry in json_logs(logs[name], "train_inner")]
        assert [logs[name].count(line) for line in lines] == [1] * len(lines)
    assert len(losses["reference"]) == 4
    assert losses["auto"] == pytest.approx(losses["reference"], abs=2e-3) == losses["triton"]
    assert losses["cpp"] == pytest.approx(losses["reference"], abs=2e-3) == losses["parallel"]
    assert losses["two passes"] != losses["parallel"] == pytest.approx(losses["two passes"], abs=0.1)
    for name in ("parallel", "two passes"):
        entries = json_logs(logs[name], "train_inner")
        assert all(float(entry["parallel_passes"]) >= 2 and float(entry["parallel_change"]) < 0.5 for entry in entries)
