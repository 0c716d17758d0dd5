"""What transformers' trainers decide about a model by its class, its signature and its outputs, against plain torch."""

import functools

import pytest
import torch
import torch.nn.functional as F

pytest.importorskip("transformers")
import fb_fairseq.transformers as ft  # noqa: E402,F401  before anything of transformers, as users do

pytest.importorskip("accelerate")
pytestmark = pytest.mark.not_fast

import transformers  # noqa: E402

from fb_fairseq import byte_codec  # noqa: E402
from fb_fairseq.errors import UserError  # noqa: E402
from fb_fairseq.ops.log import log_once  # noqa: E402
from fb_fairseq.transformers.tokenizers import build_tokenizer  # noqa: E402
from tests.transformers.models import V, build, tagger, translator  # noqa: E402

TEXTS = [torch.randint(4, V, (n,), generator=torch.Generator().manual_seed(n)) for n in (9, 4, 6, 12)]
KINDS = ["feedback", "transformer", "all-attention", "adaptive", "lstm"]


def tokenizer(side):
    """A tokenizer of bytes that pads on this side."""
    made = build_tokenizer(["<s>", "<pad>", "</s>", "<unk>", *byte_codec.SYMBOLS])
    made.padding_side = side
    return made


def losses_by_hand(model, smoothing=0.0):
    """The sum of the losses of texts, one by one, and their number."""
    total = number = 0
    for text in TEXTS:
        logits = model(text[None]).logits[0, :-1]
        total = total + F.cross_entropy(logits, text[1:], reduction="sum", label_smoothing=smoothing)
        number += len(text) - 1
    return total, number


def arguments(folder, kind=transformers.TrainingArguments, **more):
    """The trainer's settings, on a CPU: one update unless ``more`` says otherwise."""
    options = dict(report_to=[], use_cpu=True, disable_tqdm=True, save_strategy="no", logging_steps=1, max_steps=1)
    options.update(per_device_train_batch_size=4, per_device_eval_batch_size=4, learning_rate=0.01, warmup_steps=0)
    return kind(str(folder), **{**options, **more})


def trainer(model, folder, side="right", smoothing=0.0, **more):
    """A trainer of a model on ``TEXTS``, padded on this side."""
    rows = [{"input_ids": text.tolist()} for text in TEXTS]
    data = dict(train_dataset=rows, eval_dataset=rows)
    data["data_collator"] = transformers.DataCollatorForLanguageModeling(tokenizer(side), mlm=False)
    return transformers.Trainer(model=model, args=arguments(folder, label_smoothing_factor=smoothing, **more), **data)


@pytest.mark.parametrize("kind", KINDS)
def test_base_model(kind):
    """What TRL and models with another output layer call: features that the output layer makes into the model's logits,
    and memory."""
    model = build(kind)
    texts = torch.stack([TEXTS[3], TEXTS[3].flip(0)])
    with torch.no_grad():
        first = model.base_model(input_ids=texts[:, :5], attention_mask=torch.ones(2, 5))
        second = model.base_model(input_ids=texts[:, 5:], past_key_values=first.past_key_values, use_cache=False)
        features = torch.cat([first.last_hidden_state, second.last_hidden_state], 1)
        assert torch.allclose(model.decoder.logits(features), model(texts).logits, atol=1e-5)
    with pytest.raises(UserError, match="^labels: not an argument"):
        model.base_model(input_ids=texts, labels=texts)


def test_resizing_to_the_same_size():
    """As scripts do with ``len(tokenizer)``."""
    model = build("feedback")
    assert model.resize_token_embeddings(V) is model.resize_token_embeddings() is model.get_input_embeddings()
    for size, multiple in ((V + 1, None), (V, 64)):
        with pytest.raises(UserError, match="cannot be changed"):
            model.resize_token_embeddings(size, multiple)


@pytest.mark.parametrize("side,smoothing", [("left", 0.0), ("right", 0.0), ("right", 0.1)])
@pytest.mark.parametrize("kind", KINDS)
def test_evaluation(kind, side, smoothing, tmp_path):
    """The loss of padded texts is that of the texts one by one; metrics get the tokens themselves, as is usual."""
    model, seen = build(kind), {}
    made = trainer(model, tmp_path, side, smoothing)
    made.compute_metrics = lambda outputs: seen.update(labels=outputs.label_ids, logits=outputs.predictions) or {}
    found = made.evaluate()
    with torch.no_grad():
        total, number = losses_by_hand(model, smoothing)
    assert found["eval_loss"] == pytest.approx((total / number).item(), abs=1e-4)
    assert seen["labels"].shape == seen["logits"].shape[:2] == (4, 12)
    assert sorted(map(tuple, seen["labels"].tolist()))[0].count(-100) >= 3


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize(
    "kind,batches,smoothing",
    [("feedback", 1, 0.0), ("transformer", 4, 0.0), ("transformer", 2, 0.1), ("adaptive", 1, 0.1)],
)
def test_an_update(kind, batches, smoothing, side, tmp_path):
    """The loss in the log, and the gradients. All tokens of an update count alike, however they are spread over its
    batches, with smoothed labels, too; the first token behind padding does not."""
    model = build(kind)
    by_hand = build(kind).train()
    options = dict(gradient_accumulation_steps=batches, per_device_train_batch_size=4 // batches)
    options.update(max_grad_norm=0.0, optim="sgd", learning_rate=1.0)
    made = trainer(model, tmp_path, side, smoothing, **options)
    made.train()
    total, number = losses_by_hand(by_hand, smoothing)
    (total / number).backward()
    assert made.state.log_history[0]["loss"] == pytest.approx((total / number).item(), abs=2e-3)
    for (name, ours), plain in zip(model.named_parameters(), by_hand.parameters()):
        torch.testing.assert_close(ours, plain - plain.grad, atol=1e-5, rtol=1e-5, msg=name)


def test_a_loss_outside_of_the_model(tmp_path, caplog):
    """It gets logits and the labels; what it misses of adaptive spans is logged, which the model's own loss has."""
    log_once.cache_clear()
    model = build("feedback-per-layer-spans").train()
    model(TEXTS[0][None], labels=TEXTS[0][None])
    assert "without their penalty" not in caplog.text
    made = trainer(model, tmp_path)
    seen = []
    made.compute_loss_func = lambda outputs, labels, num_items_in_batch: (
        seen.append((outputs.logits.shape, labels.shape, int(num_items_in_batch))) or outputs.logits.mean()
    )
    made.train()
    assert seen == [((4, 12, V), (4, 12), sum(len(text) - 1 for text in TEXTS))]
    assert caplog.text.count("the loss is computed outside of the model, and so without their penalty") == 1


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_translation(smoothing, tmp_path):
    """``Seq2SeqTrainer``, with the collator's decoder inputs: losses of padded pairs are those of the pairs."""
    model = translator("pre-norm")
    words = min(model.config.vocab_size, model.config.source_vocab_size) - 4
    sentence = lambda text: [*(text % words + 4).tolist(), 2]
    targets = [text.flip(0)[:n] for n, text in zip((3, 4, 5, 2), TEXTS)]
    pairs = [dict(input_ids=sentence(text), labels=sentence(target)) for text, target in zip(TEXTS, targets)]
    total = number = 0
    with torch.no_grad():
        for pair in pairs:
            labels = torch.tensor([pair["labels"]])
            logits = model(torch.tensor([pair["input_ids"]]), labels=labels).logits[0]
            total += F.cross_entropy(logits, labels[0], reduction="sum", label_smoothing=smoothing).item()
            number += labels.numel()
    args = arguments(tmp_path, transformers.Seq2SeqTrainingArguments, label_smoothing_factor=smoothing)
    data = dict(train_dataset=pairs, eval_dataset=pairs)
    data["data_collator"] = transformers.DataCollatorForSeq2Seq(tokenizer("right"), model=model)
    made = transformers.Seq2SeqTrainer(model=model, args=args, **data)
    assert made.evaluate()["eval_loss"] == pytest.approx(total / number, abs=1e-4)
    made.train()
    assert made.state.log_history[-2]["loss"] == pytest.approx(total / number, abs=2e-3)


@pytest.mark.parametrize("batches,smoothing", [(1, 0.0), (2, 0.0), (2, 0.1)])
def test_labels_of_tokens(batches, smoothing, tmp_path):
    """Of a model that predicts labels: they are not shifted, and those of an update count alike."""
    model = tagger()
    rows = [{"input_ids": [2, *text.tolist()], "labels": [-100, *text.flip(0).tolist()]} for text in TEXTS]
    total = number = 0
    for row in rows:
        logits = model(torch.tensor([row["input_ids"]])).logits[0]
        labels = torch.tensor(row["labels"])
        total += F.cross_entropy(logits, labels, reduction="sum", label_smoothing=smoothing).item()
        number += len(labels) - 1
    sizes = dict(per_device_train_batch_size=4 // batches, gradient_accumulation_steps=batches)
    made = transformers.Trainer(
        model=model,
        args=arguments(tmp_path, label_smoothing_factor=smoothing, **sizes),
        train_dataset=rows,
        eval_dataset=rows,
        data_collator=transformers.DataCollatorForTokenClassification(tokenizer("right")),
    )
    assert made.evaluate()["eval_loss"] == pytest.approx(total / number, abs=1e-4)
    made.train()
    (logged,) = [entry["loss"] for entry in made.state.log_history if "loss" in entry]
    assert logged == pytest.approx(total / number, abs=1e-4)


def test_a_trainer_that_others_have_wrapped(monkeypatch):
    """It is adapted, once."""

    class Wrapped:
        def _get_num_items_in_batch(self, batches, device):
            return sum(int((batch["labels"] != -100).sum()) for batch in batches)

        @functools.wraps(print)
        def compute_loss(self):
            """Of another package."""

    monkeypatch.setattr(transformers.trainer, "Trainer", Wrapped)
    for _ in range(2):
        assert build("feedback").accepts_loss_kwargs
    Wrapped.model = build("feedback")
    assert Wrapped()._get_num_items_in_batch([{"labels": torch.tensor([[4, 5, 6]])}], None) == 2
