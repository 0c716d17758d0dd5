"""Options of ``streaming_lm`` that contradict each other, or have no meaning on streams, are refused by name."""

from argparse import Namespace

import pytest
from fairseq.data import Dictionary

from fb_fairseq.errors import UserError
from fb_fairseq.streams.fairseq.dataset import StreamDataset
from fb_fairseq.tasks.options import (
    StreamingLMConfig,
    check_architecture,
    check_batch_options,
    check_own_options,
    check_training_options,
    prepare_arguments,
)
from fb_fairseq.tasks.streaming_lm import StreamingLMTask
from tests.streams.fairseq.indexed import PAD, corpus


def config(**changes):
    """Options of streaming_lm that are allowed together, with these changes."""
    own = dict(tokens_per_sample=8, valid_streams=2, bptt_warmup_tokens=0, bptt_warmup_iterations=0, labels=False)
    fairseqs = dict(max_tokens=None, max_tokens_valid=None, skip_remainder_batch=False)
    fairseqs.update(batch_size=4, batch_size_valid=4)
    return Namespace(**{**own, "sample_break_mode": "none", "omit_eos": False, **fairseqs, **changes})


@pytest.mark.parametrize("check", [check_own_options, check_batch_options, check_training_options])
def test_good_options_pass(check):
    check(config())
    check(config(bptt_warmup_tokens=2, bptt_warmup_iterations=10, batch_size_valid=None))
    check(config(tokens_per_sample=1, valid_streams=1, batch_size=1, batch_size_valid=1))


@pytest.mark.parametrize(
    "check,changes,named",
    [
        (check_own_options, {"tokens_per_sample": 0}, "--tokens-per-sample 0"),
        (check_own_options, {"valid_streams": -1}, "--valid-streams -1"),
        (check_own_options, {"bptt_warmup_tokens": 2}, "--bptt-warmup-iterations 0: give both"),
        (check_own_options, {"bptt_warmup_iterations": 5}, "--bptt-warmup-tokens 0 .*: give both"),
        (check_own_options, {"bptt_warmup_tokens": -2, "bptt_warmup_iterations": 5}, "give both, 1 or more"),
        (check_own_options, {"bptt_warmup_tokens": 3, "bptt_warmup_iterations": 5}, "sample 8; give 8 divided by"),
        (check_own_options, {"bptt_warmup_tokens": 16, "bptt_warmup_iterations": 5}, "--bptt-warmup-tokens 16"),
        (check_own_options, {"labels": True, "sample_break_mode": "eos"}, "--sample-break-mode eos"),
        (check_own_options, {"labels": True, "omit_eos": True}, "--omit-eos: is for text"),
        (check_batch_options, {"max_tokens": 100}, "--max-tokens .*; give --batch-size 12$"),
        (check_batch_options, {"max_tokens": "7"}, "--max-tokens .*; give --batch-size 1$"),
        (check_batch_options, {"max_tokens_valid": 100}, "--max-tokens-valid "),
        (check_batch_options, {"skip_remainder_batch": True}, "--skip-remainder-batch"),
        (check_training_options, {"batch_size": None, "batch_size_valid": None}, "--batch-size:"),
        (check_training_options, {"batch_size_valid": 5}, "--batch-size-valid"),
    ],
)
def test_bad_options_are_refused(check, changes, named):
    with pytest.raises(UserError, match=named):
        check(config(**changes))


@pytest.mark.parametrize(
    "changes,given,expected",
    [
        (dict(arch="feedback_transformer_lm"), "", dict(batch_size_valid=4)),
        (
            dict(arch="feedback_transformer_lm", batch_size_valid="7"),
            "batch_size_valid",
            dict(valid_streams=7, batch_size_valid=4),
        ),
        (dict(arch="feedback_transformer_lm"), "batch_size", dict(batch_size_valid=4)),
        (dict(batch_size="7"), "batch_size", dict(valid_streams=7)),
        (dict(batch_size=None), "", dict(batch_size=2)),
        (dict(batch_size=None, max_tokens=9), "", {}),
        (dict(batch_size=3), "", {}),
        (dict(beam=5, batch_size="7", sample_break_mode="eos"), "batch_size", {}),
    ],
)
def test_the_number_of_streams_on_the_command_line(changes, given, expected):
    """``--batch-size`` in training; elsewhere another name of ``--valid-streams``; in generation, of prompts."""
    args = config(**{"batch_size_valid": None, **changes})
    before = dict(vars(args))
    prepare_arguments(args, lambda name: name == given)
    assert vars(args) == {**before, **expected}


def test_every_option_has_a_help_text():
    own = [f for f in StreamingLMConfig.__dataclass_fields__.values() if not str(f.default).startswith("${")]
    assert all(f.metadata.get("help") for f in own if f.name != "_name")


def test_little_text_is_told(caplog):
    """Where an epoch of training is one update."""
    own = {"save_stream_memory": "none", "separate_sequences": False, "update_freq": [1], "train_subset": "train"}
    task = StreamingLMTask(config(**own, data=""), Dictionary())
    more, little = (StreamDataset("train", corpus([tokens]), PAD) for tokens in (33, 32))
    alone = task.get_batch_iterator(more, grouped_shuffling=False)
    assert not caplog.messages and (alone.epoch, alone.num_shards, alone.buffer_size) == (1, 1, 0)
    second = task.get_batch_iterator(more, grouped_shuffling=False, num_shards=2, shard_id=1)
    assert (second.num_shards, second.shard_id, second.layout.groups) == (2, 1, 2) and alone.layout.groups == 1
    task.get_batch_iterator(little, grouped_shuffling=False)
    assert "--update-freq: 4 streams of the 32 tokens of the train split are read in one update" in caplog.text


@pytest.mark.parametrize(
    "name,model", [("arch", "transformer_lm"), ("_name", "transformer_lm"), ("arch", "transformer_lm_gpt")]
)
def test_architectures_without_a_memory(name, model):
    """By the command line and by a model's configuration."""
    check_architecture(Namespace(**{name: "feedback_transformer_lm"}))
    check_architecture(Namespace())
    with pytest.raises(UserError, match=f"--task streaming_lm: {model} carries no memory from block to block"):
        check_architecture(Namespace(**{name: model}))
