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


def train(folder, steps, resume=None, collator=None, resume_from=None, evaluate=None, kind="feedback", **more):
    """Train up to so many updates. Returns the model, and the losses that were logged.

    Args:
        resume: the folder of the checkpoint to go on from; ``resume_from``: what the memory's callback is told of it.
        evaluate: the blocks of evaluation.
        more: further settings of the trainer.
    """
    collator = collator or StreamCollator()
    options = {"remove_unused_columns": False, "save_steps": 4, "per_device_eval_batch_size": 1, **more}
    data = dict(train_dataset=StreamBlocks(TEXT, STREAMS, STEPS), eval_dataset=evaluate, data_collator=collator)
    callbacks = [StreamMemoryCallback(collator, resume_from)]
    trainer = Trainer(model=build(kind), args=arguments(folder, steps, **options), **data, callbacks=callbacks)
    trainer.train(resume_from_checkpoint=resume)
    return trainer.model, [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]


def read(model, blocks, smoothing=0.0):
    """Mean loss of all targets of blocks whose memory is carried by hand."""
    cache = ft.StreamCache()
    with torch.no_grad():
        logits = [model(block["input_ids"], past_key_values=cache).logits.flatten(0, 1) for block in blocks]
    targets = torch.cat([block["labels"].flatten() for block in blocks])
    return torch.nn.functional.cross_entropy(torch.cat(logits), targets, label_smoothing=smoothing).item()


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
    resumed, again = train(tmp_path, 11, resume=str(tmp_path / "checkpoint-4"))
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
        expected = read(trained.eval(), other, smoothing)
        assert made.evaluate()["eval_loss"] == pytest.approx(expected, abs=1e-5)
        assert made.predict(other).metrics["test_loss"] == pytest.approx(expected, abs=1e-5)


def test_where_a_resumed_run_finds_its_memory(tmp_path):
    """In the checkpoint that it resumes from, which may be anywhere; never in that of another model."""
    first = tmp_path / "first"
    second = tmp_path / "second"
    losses = train(first, 8)[1]
    checkpoint = str(first / "checkpoint-4")
    with pytest.raises(UserError, match="no stream_memory.safetensors of this model at step 4; give StreamMemoryCall"):
        train(second, 8, resume=checkpoint)
    assert train(second, 8, resume=checkpoint, resume_from=checkpoint)[1][-4:] == losses[-4:]
    train(second, 4, learning_rate=0.1)  # another model's checkpoint-4
    with pytest.raises(UserError, match="of this model at step 4"):
        train(second, 8, resume=checkpoint)
    assert train(second, 8, resume=checkpoint, resume_from=checkpoint)[1][-4:] == losses[-4:]


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


@pytest.mark.parametrize("blocks", [1, 2])  # of an update; 7 and 8 are the epoch's last ones, the last is shorter
@pytest.mark.parametrize("kind", ["feedback", "adaptive", "feedback-per-layer-spans"])
def test_label_smoothing_of_streams(kind, blocks, tmp_path):
    """All targets count, as many times as blocks are long, and so does the adaptive spans' penalty."""
    options = dict(
        learning_rate=0.0, save_strategy="no", label_smoothing_factor=0.1, gradient_accumulation_steps=blocks
    )
    _, losses = train(tmp_path, -(-7 // blocks), kind=kind, **options)
    model = build(kind)
    cache = ft.StreamCache()
    expected = []
    read_blocks = list(StreamBlocks(TEXT, STREAMS, STEPS))
    for first in range(0, 7, blocks):
        total = number = 0
        for block in read_blocks[first : first + blocks]:
            with torch.no_grad():
                logits = model(block["input_ids"], past_key_values=cache).logits.flatten(0, 1)
            targets = block["labels"].flatten()
            total += torch.nn.functional.cross_entropy(logits, targets, reduction="sum", label_smoothing=0.1).item()
            penalty = model.decoder.stack.report().penalty
            total += 0 if penalty is None else penalty.item() * len(targets)
            number += len(targets)
        expected.append(total / number)
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
