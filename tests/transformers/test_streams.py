"""transformers' Trainer: on independent blocks, and on streams whose memory is carried from block to block."""

import pytest
import torch

pytest.importorskip("transformers")
import fb_fairseq.transformers as ft  # noqa: E402  before anything of transformers, as users do

pytest.importorskip("accelerate")
pytestmark = pytest.mark.not_fast

from transformers import Trainer, TrainingArguments  # noqa: E402

from fb_fairseq.errors import UserError  # noqa: E402
from fb_fairseq.transformers.streams import StreamBlocks, StreamCollator, StreamMemoryCallback  # noqa: E402
from tests.transformers.test_modeling import V, build  # noqa: E402

STREAMS, STEPS = 4, 8
TEXT = torch.randint(4, V, (STREAMS * 53 + 2,), generator=torch.Generator().manual_seed(1))
LR = 0.01


def arguments(folder, steps, **more):
    return TrainingArguments(
        str(folder),
        per_device_train_batch_size=more.pop("per_device_train_batch_size", 1),
        max_steps=steps,
        learning_rate=LR,
        lr_scheduler_type="constant",
        logging_steps=1,
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
        **more,
    )


def train(folder, steps, resume=None, **more):
    model, collator = build("feedback"), StreamCollator()
    options = dict(remove_unused_columns=False, save_steps=4, **more)
    trainer = Trainer(
        model=model,
        args=arguments(folder, steps, **options),
        train_dataset=StreamBlocks(TEXT, STREAMS, STEPS),
        data_collator=collator,
        callbacks=[StreamMemoryCallback(collator)],
    )
    trainer.train(resume_from_checkpoint=resume)
    return model, [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]


def test_blocks_of_streams():
    """Every token is a target once, and the input of each is the token before it."""
    blocks = list(StreamBlocks(TEXT, STREAMS, STEPS))
    assert (
        len(blocks) == len(StreamBlocks(TEXT, STREAMS, STEPS)) == 7 and blocks[-1]["input_ids"].shape[1] == 53 % STEPS
    )
    inputs, targets = (torch.cat([block[name] for block in blocks], 1) for name in ("input_ids", "labels"))
    text = TEXT[: STREAMS * 53]
    assert targets.flatten().equal(text) and inputs.flatten().tolist() == [2, *text[:-1].tolist()]
    with pytest.raises(UserError, match="streams=1000: the text has only"):
        StreamBlocks(TEXT, 1000, STEPS)


@pytest.mark.parametrize("streams,steps", [(STREAMS, STEPS), (1, 5), (3, 200), (7, 1)])
def test_a_text_is_cut_as_for_fairseq(streams, steps):
    pytest.importorskip("fairseq")
    from fb_fairseq.streams.bptt_warmup import BlockLengths
    from fb_fairseq.streams.fairseq.dataset import StreamDataset
    from fb_fairseq.streams.layout import StreamLayout
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


def test_wrong_arguments(tmp_path):
    with pytest.raises(UserError, match="per_device_train_batch_size=2: a block holds all streams; give 1"):
        train(tmp_path, 2, per_device_train_batch_size=2)
    with pytest.raises(UserError, match="remove_unused_columns=True: would remove the position of blocks; give False"):
        StreamCollator()([{"input_ids": TEXT, "labels": TEXT}])


def test_independent_blocks(tmp_path):
    """The plain Trainer, with gradient checkpointing and accumulation; the loss falls."""
    model = build("transformer")
    rows = [{"input_ids": row, "labels": row} for row in TEXT[: 4 * 40].view(8, 20).repeat(4, 1)]
    options = dict(per_device_train_batch_size=4, gradient_accumulation_steps=2, gradient_checkpointing=True)
    trainer = Trainer(model=model, args=arguments(tmp_path, 12, save_strategy="no", **options), train_dataset=rows)
    trainer.train()
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    assert losses[-1] < losses[0] - 0.3
