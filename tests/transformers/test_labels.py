"""Models that predict a label of each token: their loss, and what is refused."""

import pytest
import torch

pytest.importorskip("transformers")
from transformers import AutoModelForCausalLM, AutoModelForTokenClassification  # noqa: E402

import fb_fairseq.transformers as ft  # noqa: E402
from fb_fairseq.errors import UserError  # noqa: E402
from tests.transformers.models import SHAPE, V, tagger  # noqa: E402


def test_labels_of_tokens():
    """The loss of a model that predicts labels is that of each token's own label; padding and -100 do not count."""
    model = tagger()
    ids = torch.tensor([[2, 5, 6, 7, 8], [1, 1, 2, 9, 4]])
    labels = torch.tensor([[-100, 9, 8, 7, 6], [-100, -100, -100, 5, 10]])
    output = model(ids, attention_mask=(ids != 1).long(), labels=labels)
    counted = labels != -100
    by_hand = torch.nn.functional.cross_entropy(output.logits[counted], labels[counted])
    torch.testing.assert_close(output.loss, by_hand)
    alone = model(ids[1:, 2:], labels=labels[1:, 2:])
    torch.testing.assert_close(alone.logits, output.logits[1:, 2:])


def test_labels_are_not_taken_for_the_next_token(tmp_path):
    """What loads or calls a language model is refused: generation, pipelines, harnesses, their collators."""
    model = tagger(separate_sequences=True)
    ids = torch.tensor([[2, 5, 6]])
    model.save_pretrained(tmp_path)
    loaded = AutoModelForTokenClassification.from_pretrained(tmp_path)
    assert loaded.config.labels and loaded.config.separate_sequences
    with pytest.raises(UserError, match="the model predicts labels; use AutoModelForTokenClassification"):
        AutoModelForCausalLM.from_pretrained(tmp_path)
    with pytest.raises(UserError, match="predicts the next token; use AutoModelForCausalLM"):
        ft.FeedbackTransformerForTokenClassification(ft.FeedbackTransformerConfig(vocab_size=V, **SHAPE))
    for call in (
        lambda: loaded.generate(ids),
        lambda: loaded(ids, labels=ids),
        lambda: loaded(ids, shift_labels=ids.roll(-1)),
    ):
        with pytest.raises(UserError, match="the model predicts"):
            call()
