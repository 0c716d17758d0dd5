"""fairseq-train on streams: it learns, counts every target once, and says one loss everywhere."""

import re
from unittest import mock

import fairseq_cli.eval_lm
import pytest
import torch

from fb_fairseq.commands import preprocess_bytes
from fb_fairseq.ops.feedback.loops import log_choice
from fb_fairseq.ops.log import log_once
from tests.cli.checkpoints import assert_same_parameters, eval_lm, loss_by_hand, loss_in
from tests.cli.conftest import made_up_text
from tests.cli.fairseq_commands import (
    PLUGIN,
    json_logs,
    options,
    run,
    train,
    train_in_two_processes,
    training_arguments,
)


def test_one_loss_in_training_evaluation_and_by_hand(byte_data, tmp_path):
    log = train(byte_data, tmp_path, max_epoch=2, valid_subset="valid,valid1", no_epoch_checkpoints=True)
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
    results = []
    measure = fairseq_cli.eval_lm.eval_lm

    def keep(**options):
        results.append(measure(**options))
        return results[-1]

    with mock.patch.object(fairseq_cli.eval_lm, "eval_lm", keep):  # its log has fewer digits
        eval_lm(byte_data, checkpoint, gen_subset="valid", valid_streams=3, tokens_per_sample=7)
    bits, tokens = loss_by_hand(checkpoint, byte_data, "valid", 3)
    assert float(results[0]["loss"]) == pytest.approx(bits / tokens, rel=1e-6)


@pytest.mark.on_ci
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
    assert loss_in(evaluated) == pytest.approx(bits / tokens, abs=6e-5)


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


def test_evaluation_without_a_memory_is_told(byte_data, language_models):
    """Of a model that was trained with one; evaluation with it says nothing."""
    checkpoint = language_models["feedback_transformer_lm"]
    told = "was trained with --task streaming_lm; without this option, each sample starts with an empty memory"
    for task in ("language_modeling", "streaming_lm"):
        log = eval_lm(byte_data, checkpoint, gen_subset="valid", task=task, tokens_per_sample=20)
        assert (told in log) == (task == "language_modeling")


def test_buffers_change_nothing(commands, byte_data, tmp_path):
    """fairseq reads ahead in a thread. (Worker processes are never started: --num-workers has no effect.)"""
    train(byte_data, tmp_path / "a", max_update=20, data_buffer_size=0)
    arguments = training_arguments(byte_data, tmp_path / "b", max_update=20, data_buffer_size=10, num_workers=2)
    result = commands.run("fairseq-train", *arguments, "--user-dir", PLUGIN)
    assert result.status == 0 and any("--num-workers 2 has no effect" in line for line in [*result.out, *result.errors])
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
    step, ran = StreamingLMTask.train_step, []

    def twice(self, sample, model, criterion, optimizer, *args, **kwargs):
        ran.append(sample)
        step(self, sample, model, criterion, optimizer, *args, **kwargs)
        optimizer.zero_grad()
        return step(self, sample, model, criterion, optimizer, *args, **kwargs)

    monkeypatch.setattr(StreamingLMTask, "train_step", twice)
    train(byte_data, tmp_path / "b", max_update=30, disable_validation=True)
    assert len(ran) == 30
    assert_same_parameters(tmp_path / "a/checkpoint_last.pt", tmp_path / "b/checkpoint_last.pt")


def test_number_of_streams_in_evaluation(byte_data, tmp_path):
    """``--batch-size`` of fairseq-validate and fairseq-eval-lm is ``--valid-streams``, and so is ``--batch-size-valid``
    in training. fairseq-validate needs none of them: the checkpoint has its own."""
    trained = train(byte_data, tmp_path, max_update=4, batch_size_valid=3, valid_streams=None)
    values = dict(task="streaming_lm", path=tmp_path / "checkpoint_last.pt", cpu=True, tokens_per_sample=7)
    two = dict(batch_size=2)
    same = dict(valid_streams=2)
    three = dict(valid_streams=3)
    validated = [run("validate", byte_data, *options({**values, **change})) for change in (two, same, three, {})]
    bits = [re.findall(r"total_bits\W+([\d.]+)", log)[-1] for log in validated]
    assert bits[0] == bits[1] != bits[2] == bits[3]
    assert float(bits[3]) == pytest.approx(float(json_logs(trained, "valid")[-1]["valid_total_bits"]), abs=0.01)
    evaluated = [eval_lm(byte_data, values["path"], **change) for change in (two, same, three)]
    losses = [loss_in(log) for log in evaluated]
    assert losses[0] == losses[1] != losses[2]


def test_memory_is_carried_from_block_to_block(byte_data, tmp_path):
    """In blocks of one step nothing but the carried memory tells of the past."""
    log = train(byte_data, tmp_path, max_epoch=2, tokens_per_sample=1, batch_size=60, disable_validation=True)
    unigram = 4.1  # bits a byte of this text without context: 4.05
    assert float(json_logs(log, "train")[-1]["train_loss"]) < unigram - 0.3


@pytest.mark.on_ci
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


def test_best_checkpoint_by_another_measure(byte_data, tmp_path):
    """That it is tried out before training changes nothing else."""
    for metric in ("loss", "bpb"):
        train(byte_data, tmp_path / metric, max_update=4, dropout=0.1, best_checkpoint_metric=metric)
    paths = [tmp_path / metric / "checkpoint_last.pt" for metric in ("loss", "bpb")]
    assert_same_parameters(*paths)
    loss, bpb = (torch.load(path)["extra_state"]["best"] for path in paths)
    assert loss != bpb == pytest.approx(loss, rel=0.05)


# Each step loop's options, and what its log says once: what runs, and what runs instead where there is no GPU.
LOOPS = {
    "reference": ({}, "step loop: reference (asked for by --step-loop)"),
    "cpp": ({}, "step loop: cpp (asked for by --step-loop)"),
    "triton": ({"checkpoint_activations": True}, "triton: it does not run on cpu; the reference runs"),
}


def test_step_loops_train_alike(byte_data, tmp_path):
    losses = {}
    for name, (changes, line) in LOOPS.items():
        for cached in (log_choice, log_once):  # once a process
            cached.cache_clear()
        options_of_run = dict(step_loop=name, max_update=4, no_save=True, log_interval=1, **changes)
        log = train(byte_data, tmp_path / name, **options_of_run)
        assert log.count(line) == 1
        entries = json_logs(log, "train_inner")
        losses[name] = [float(entry["loss"]) for entry in entries]
        assert len(entries) == 4 and losses[name] == pytest.approx(losses["reference"], abs=2e-3)
