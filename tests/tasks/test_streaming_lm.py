"""The task streaming_lm: blocks of later epochs in BPTT warm-up, and codecs of prompts."""

import argparse

import pytest
from fairseq.data import Dictionary

from fb_fairseq.commands import preprocess_bytes
from fb_fairseq.errors import UserError
from fb_fairseq.streams.fairseq.dataset import StreamDataset
from fb_fairseq.streams.layout import BlockLengths
from fb_fairseq.tasks import streaming_lm
from fb_fairseq.tasks.options import StreamingLMConfig
from fb_fairseq.tasks.streaming_lm import StreamingLMTask
from tests.streams.fairseq.indexed import PAD, corpus
from tests.tasks.test_options import config


def task_with(**args):
    """A task with these arguments, without data."""
    task = object.__new__(StreamingLMTask)
    task.args = argparse.Namespace(**{"labels": False, **args})
    return task


@pytest.mark.parametrize("sizes", [[480], [480, 720]])
def test_warm_up_counts_the_iterations_of_all_epochs_before(sizes, monkeypatch, caplog):
    """Of sharded data, each epoch has another shard. Epochs of whole blocks are not told of."""
    caplog.set_level("INFO")
    options = dict(tokens_per_sample=16, bptt_warmup_tokens=2, bptt_warmup_iterations=9, batch_size=3, update_freq=[1])
    task = task_with(**options, train_subset="train")
    lengths = BlockLengths.from_options(task.args)
    shards = [range(size) for size in sizes]  # the layout looks at lengths only
    monkeypatch.setattr(task, "has_sharded_data", lambda split: len(sizes) > 1)

    def load(split, epoch, combine):
        assert combine, "with the files train1, train2, …"
        return shards[(epoch - 1) % len(shards)]

    monkeypatch.setattr(task, "_load_corpus", load)
    before, found = 0, []
    for epoch in range(1, 7):
        layout = task._training_layout(shards[(epoch - 1) % len(shards)], 1, epoch)
        assert layout.parts == 16 // lengths.at(before)
        found.append(layout.parts)
        before += len(layout.turns)
    assert len(set(found)) == 4, "whole blocks at the end"
    assert caplog.text.count("BPTT warm-up: epoch ") == len([parts for parts in found if parts > 1])


def test_each_epoch_has_its_update_freq():
    """The last one is that of all later epochs, and counts in the warm-up, too."""
    warm_up = dict(tokens_per_sample=8, bptt_warmup_tokens=4, bptt_warmup_iterations=50)
    task = task_with(**warm_up, batch_size=2, update_freq=[1, 3], train_subset="train")
    task.has_sharded_data = lambda split: False
    layouts = [task._training_layout(range(480), 2, epoch) for epoch in (1, 2, 3)]
    assert [layout.streams for layout in layouts] == [8, 24, 24], "half blocks are of two parts"


def test_batches_are_read_in_the_main_process(tmp_path, caplog):
    """--num-workers, which has no effect, is told of; --data-buffer-size has one."""
    caplog.set_level("INFO")
    texts = {"train": [b"some text"], "valid": [b"more of it"]}
    preprocess_bytes.binarise(texts, str(tmp_path / "data"))
    of_fairseq = dict(dataset_impl="mmap", train_subset="train", batch_size=1, update_freq=[1])
    of_fairseq.update(dict.fromkeys(("batch_size_valid", "max_tokens", "max_tokens_valid", "skip_remainder_batch")))
    cfg = StreamingLMConfig(data=str(tmp_path / "data"), tokens_per_sample=4, **of_fairseq)
    task = StreamingLMTask.setup_task(cfg)
    task.load_dataset("valid")
    common = dict(max_sentences=1, num_workers=4, data_buffer_size=7, seed=5)
    iterator = task.get_batch_iterator(task.dataset("valid"), **common)
    assert (iterator.num_workers, iterator.buffer_size, iterator.epoch, iterator.num_shards) == (0, 7, 1, 1)
    assert "--num-workers 4 has no effect" in caplog.text
    caplog.clear()
    task.get_batch_iterator(task.dataset("valid"), **{**common, "num_workers": 1})
    assert "--num-workers" not in caplog.text, "fairseq's default"


def test_positions_of_checkpoints():
    """In mid-epoch, and then in turns, each of which is as many batches as one of --update-freq."""
    own = {"save_stream_memory": "none", "separate_sequences": False, "train_subset": "train"}
    sizes = {"batch_size": 1, "batch_size_valid": 1, "update_freq": [2]}
    task = StreamingLMTask(config(**own, **sizes, data=""), Dictionary())
    iterator = task.get_batch_iterator(StreamDataset("train", corpus([64]), PAD), grouped_shuffling=False)
    assert "streams" not in iterator.state_dict()
    batches = iterator.next_epoch_itr()
    for _ in range(4):
        next(batches)
    position = iterator.state_dict()["streams"]
    assert (position["turns"], position["offsets"], position["streams"]) == (2, [16], 2)
    other = task.get_batch_iterator(StreamDataset("train", corpus([64]), PAD), grouped_shuffling=False)
    other.load_state_dict({"epoch": 1, "iterations_in_epoch": 0, "shuffle": False})  # saved at the end of an epoch
    other.load_state_dict({"epoch": 1, "shuffle": False})
    with pytest.raises(UserError, match="--task: the checkpoint was saved mid-epoch by another task"):
        other.load_state_dict({"epoch": 1, "iterations_in_epoch": 1, "shuffle": False})


def test_each_epoch_has_its_shard(monkeypatch):
    monkeypatch.setattr(streaming_lm, "load_corpus", lambda path, *_, **given: (path, given))
    task = StreamingLMTask(config(save_stream_memory="none", data="a:b:c", dataset_impl="lazy"), Dictionary())
    found = [task._load_corpus("train", epoch, combine=epoch == 2) for epoch in (1, 2, 3, 4)]
    assert [path for path, _ in found] == ["a/train", "b/train", "c/train", "a/train"]
    assert [given for _, given in found[:2]] == [
        dict(omit_eos=False, impl="lazy", combine=combine) for combine in (False, True)
    ]


@pytest.mark.parametrize("batch_size,streams", [(None, 2), (3, 3)])
def test_streams_of_eval_lm(batch_size, streams):
    """--batch-size takes the place of --valid-streams."""
    scores = dict.fromkeys(("post_process", "output_word_probs", "output_word_stats"))
    task = StreamingLMTask(config(save_stream_memory="none", data="", **scores), Dictionary())
    iterator = task.eval_lm_dataloader(StreamDataset("valid", corpus([30]), PAD), batch_size=batch_size)
    assert iterator.total == 30 // streams // 8 + 1 and len(next(iterator)["target"]) == streams


def test_layouts_of_labels():
    """Whole sequences."""
    for labels, bounds in ((True, [0, 5, 16]), (False, [0, 8, 16])):
        layout = task_with(labels=labels)._layout(corpus([5, 3, 8]), 2, 1, BlockLengths(8))
        assert layout.bounds.tolist() == bounds


@pytest.mark.parametrize(
    "bpe,expected", [(None, "LineByteCodec"), ("byte_codec", "LineByteCodec"), ("characters", "Characters")]
)
def test_codecs_of_prompts(bpe, expected):
    """Of byte data, which commands read line by line; another codec is fairseq's."""
    task = task_with()
    task.byte_data = True
    codec = task.build_bpe(argparse.Namespace(bpe=bpe))
    assert type(codec).__name__ == ("Characters" if bpe == "characters" else "LineByteCodec")
