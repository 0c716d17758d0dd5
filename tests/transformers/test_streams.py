"""transformers' Trainer: on independent blocks, and on streams whose memory is carried from block to block."""

import copy
import pickle

import pytest
import torch

pytest.importorskip("transformers")
import fb_fairseq.transformers as ft  # noqa: E402  before anything of transformers, as users do

pytest.importorskip("accelerate")
pytestmark = pytest.mark.not_fast

from transformers import Trainer, TrainingArguments  # noqa: E402

from fb_fairseq.errors import UserError  # noqa: E402
from fb_fairseq.transformers.streams import StreamBlocks, StreamCollator, StreamMemoryCallback  # noqa: E402
from tests.conftest import on_ci  # noqa: E402
from tests.transformers.models import V, build  # noqa: E402

STREAMS, STEPS = 4, 8
TEXT = torch.randint(4, V, (STREAMS * 53 + 2,), generator=torch.Generator().manual_seed(1))
LR = 0.01


def arguments(folder, steps, **more):
    """The trainer's settings, on a CPU: so many updates, each of which logs its loss."""
    options = dict(per_device_train_batch_size=1, learning_rate=LR, lr_scheduler_type="constant", logging_steps=1)
    options.update(report_to=[], use_cpu=True, disable_tqdm=True, max_steps=steps)
    return TrainingArguments(str(folder), **{**options, **more})


def train(folder, steps, *, checkpoint=None, memory_in=None, collator=None, evaluate=None, kind="feedback", **more):
    """Train a model of random weights on the streams of ``TEXT``.

    Args:
        folder: of the trainer's checkpoints, one every four updates.
        steps: updates.
        checkpoint: the one to go on from.
        memory_in: the folder with its memory, if that is not ``folder``.
        collator: a new one by default.
        evaluate: blocks of another text.
        kind: of the model, in ``KINDS``.
        more: options of ``TrainingArguments``.

    Returns:
        The model, and the loss of each update.
    """
    collator = collator or StreamCollator()
    options = {"remove_unused_columns": False, "save_steps": 4, "per_device_eval_batch_size": 1, **more}
    data = dict(train_dataset=StreamBlocks(TEXT, STREAMS, STEPS), eval_dataset=evaluate, data_collator=collator)
    callbacks = [StreamMemoryCallback(collator, memory_in)]
    trainer = Trainer(model=build(kind), args=arguments(folder, steps, **options), **data, callbacks=callbacks)
    trainer.train(resume_from_checkpoint=checkpoint)
    return trainer.model, [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]


def read(model, blocks, smoothing):
    """The loss of each block, penalty included, summed over its targets, and their number. The memory is carried by
    hand."""
    cache = ft.StreamCache()
    options = dict(reduction="sum", label_smoothing=smoothing)
    found = []
    for block in blocks:
        with torch.no_grad():
            logits = model(block["input_ids"], past_key_values=cache).logits.flatten(0, 1)
        targets = block["labels"].flatten()
        loss = torch.nn.functional.cross_entropy(logits, targets, **options)
        penalty = model.decoder.stack.report().penalty
        if penalty is not None:
            loss += len(targets) * penalty
        found.append((loss.item(), len(targets)))
    return found


def mean(blocks):
    """The mean loss per target of blocks: sums and numbers."""
    return sum(loss for loss, _ in blocks) / sum(number for _, number in blocks)


@pytest.mark.parametrize("streams,steps", [(STREAMS, STEPS), (1, 5), (3, 200), (7, 1)])
def test_a_text_is_cut_as_for_fairseq(streams, steps):
    pytest.importorskip("fairseq")
    from fb_fairseq.streams.fairseq.dataset import StreamDataset
    from fb_fairseq.streams.layout import BlockLengths, StreamLayout
    from tests.streams.fairseq.indexed import EOS, PAD, Corpus, Items

    text = TEXT[: len(TEXT) // streams * streams]
    layout = StreamLayout(len(text), streams, 1, BlockLengths(steps))
    dataset = StreamDataset("train", Corpus(Items([text]), EOS), PAD, layout)
    blocks = list(StreamBlocks(TEXT, streams, steps))
    assert len(blocks) == len(dataset)
    for block, batch in zip(blocks, map(dataset.__getitem__, range(len(dataset)))):
        assert block["input_ids"].equal(batch["net_input"]["src_tokens"]) and block["labels"].equal(batch["target"])
        assert block["start"] == batch["block"]["offset"]


def test_memory_is_carried(tmp_path):
    """As a loop by hand, over two epochs; and a resumed run goes on as if it had not been interrupted."""
    model, losses = train(tmp_path, 11)
    by_hand, expected = build("feedback").train(), []
    optimizer = torch.optim.AdamW(by_hand.parameters(), lr=LR, weight_decay=0)
    while len(expected) < 11:
        cache = ft.StreamCache()
        for block in list(StreamBlocks(TEXT, STREAMS, STEPS))[: 11 - len(expected)]:
            output = by_hand(block["input_ids"], shift_labels=block["labels"], past_key_values=cache)
            optimizer.zero_grad()
            output.loss.backward()
            torch.nn.utils.clip_grad_norm_(by_hand.parameters(), 1.0)
            optimizer.step()
            expected.append(output.loss.item())
    assert losses == pytest.approx(expected, abs=1e-3)
    resumed, again = train(tmp_path, 11, checkpoint=str(tmp_path / "checkpoint-4"))
    assert again == losses
    for (name, a), b in zip(model.named_parameters(), resumed.parameters()):
        assert a.equal(b), name


@pytest.mark.parametrize("workers", [on_ci(1), 2])
def test_workers(tmp_path, workers):
    """Processes that make batches have no memory, and make each block once."""
    alone = train(tmp_path, 9, save_strategy="no")[1]
    assert train(tmp_path, 9, save_strategy="no", dataloader_num_workers=workers)[1] == alone


def test_copies_have_the_same_memory(tmp_path):
    alone = train(tmp_path, 5, save_strategy="no")[1]
    collator = StreamCollator()
    copied = copy.deepcopy(collator)
    assert copied.memory is pickle.loads(pickle.dumps(collator)).memory is collator.memory
    assert train(tmp_path, 5, save_strategy="no", collator=copied)[1] == alone
    memory = collator.memory
    assert memory.store.latest(memory.trained) == 5 * STEPS


def test_evaluation_between_updates(tmp_path):
    """On another text and on the same one, by the same collator: training does not notice it."""
    alone = train(tmp_path, 9, save_strategy="no")[1]
    other = StreamBlocks(TEXT.flip(0), 2, 11)
    options = dict(save_strategy="no", eval_strategy="steps", eval_steps=2)
    trained, losses = train(tmp_path, 9, evaluate={"a": other, "b": StreamBlocks(TEXT, STREAMS, STEPS)}, **options)
    assert losses == alone
    data = dict(data_collator=StreamCollator(), eval_dataset=other)
    options = dict(remove_unused_columns=False, per_device_eval_batch_size=1, eval_accumulation_steps=2)
    for smoothing in (0.0, 0.1):
        made = Trainer(model=trained, args=arguments(tmp_path, 1, label_smoothing_factor=smoothing, **options), **data)
        expected = mean(read(trained.eval(), other, smoothing))
        assert made.evaluate()["eval_loss"] == pytest.approx(expected, abs=1e-5)
        assert made.predict(other).metrics["test_loss"] == pytest.approx(expected, abs=1e-5)


@pytest.mark.on_ci
def test_where_a_resumed_run_finds_its_memory(tmp_path):
    """In the checkpoint that it resumes from, which may be anywhere; never in that of another model."""
    first = tmp_path / "first"
    second = tmp_path / "second"
    losses = train(first, 8)[1]
    checkpoint = str(first / "checkpoint-4")
    with pytest.raises(UserError, match="no stream_memory.safetensors of this model at step 4; give StreamMemoryCall"):
        train(second, 8, checkpoint=checkpoint)
    assert train(second, 8, checkpoint=checkpoint, memory_in=checkpoint)[1][-4:] == losses[-4:]
    train(second, 4, learning_rate=0.1)  # another model's checkpoint-4
    with pytest.raises(UserError, match="of this model at step 4"):
        train(second, 8, checkpoint=checkpoint)
    assert train(second, 8, checkpoint=checkpoint, memory_in=checkpoint)[1][-4:] == losses[-4:]


def test_lost_memory():
    """Is an error, not an empty memory."""
    model = build("feedback")
    collator = StreamCollator()
    blocks = list(StreamBlocks(TEXT, STREAMS, STEPS))
    first, second, third = (collator([block]) for block in blocks[:3])
    with pytest.raises(UserError, match="a block begins after 8 tokens, but there is no memory; read the blocks in"):
        model(**second)
    model(**first)
    with pytest.raises(UserError, match="a block begins after 16 tokens, but the memory is that after 8"):
        model(**third)
    with pytest.raises(UserError, match="streams: 2 of 4 streams of a block, in one of several processes or GPUs"):
        model(**{**second, **{name: second[name][:2] for name in ("input_ids", "labels", "shift_labels")}})


def test_a_single_process_of_torchrun(monkeypatch):
    """It has all streams; one of two has not."""
    model = build("feedback")
    (block, *_) = StreamBlocks(TEXT, STREAMS, STEPS)
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 1)
    assert model(**StreamCollator()([block])).loss.isfinite()
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 2)
    with pytest.raises(UserError, match="streams: 4 of 4 streams of a block, in one of several processes or GPUs"):
        model(**StreamCollator()([block]))


@pytest.mark.parametrize("blocks,updates", [(1, 7), (2, 4)])  # an epoch has seven blocks, of which the last is shorter
@pytest.mark.parametrize("kind", ["feedback", "adaptive", "feedback-per-layer-spans"])
def test_label_smoothing_of_streams(kind, blocks, updates, tmp_path):
    """All targets count, as many times as blocks are long, and so does the adaptive spans' penalty."""
    options = dict(
        learning_rate=0.0, save_strategy="no", label_smoothing_factor=0.1, gradient_accumulation_steps=blocks
    )
    _, losses = train(tmp_path, updates, kind=kind, **options)
    of_blocks = read(build(kind), StreamBlocks(TEXT, STREAMS, STEPS), 0.1)
    assert len(of_blocks) == 7 and of_blocks[6][1] < of_blocks[0][1]
    expected = [mean(of_blocks[first : first + blocks]) for first in range(0, 7, blocks)]
    assert losses == pytest.approx(expected, abs=1e-4)


def test_wrong_arguments(tmp_path):
    with pytest.raises(UserError, match="streams=1000: the text has only"):
        StreamBlocks(TEXT, 1000, STEPS)
    for kind in ("train", "eval"):
        options = {f"per_device_{kind}_batch_size": 2, "eval_strategy": "steps", "eval_steps": 1}
        with pytest.raises(
            UserError, match="2 blocks in a batch, .* give per_device_train_batch_size=1 and per_device_e"
        ):
            train(tmp_path, 2, evaluate=StreamBlocks(TEXT, STREAMS, STEPS), **options)
    with pytest.raises(UserError, match="remove_unused_columns=True: would remove the position of blocks; give False"):
        StreamCollator()([{"input_ids": TEXT, "labels": TEXT}])
