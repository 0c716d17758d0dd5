"""Models that predict a label of each token: what they refuse. (``test_trainer.py`` has their loss.)"""

from functools import partial

import pytest
import torch

pytest.importorskip("transformers")
from transformers import AutoModelForCausalLM, AutoModelForTokenClassification  # noqa: E402

import fb_fairseq.transformers as ft  # noqa: E402
from fb_fairseq.errors import UserError  # noqa: E402
from tests.transformers.models import SHAPE, V, tagger  # noqa: E402


def test_what_configurations_of_earlier_versions_leave_out():
    config = ft.FeedbackTransformerConfig()
    assert not (config.labels or config.separate_sequences or config.omit_eos)


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
        *(partial(loaded, ids, labels=torch.tensor([[5, special, -100]])) for special in range(4)),
    ):
        with pytest.raises(UserError, match="the model predicts"):
            call()
    assert loaded(ids, labels=torch.tensor([[-100, 4, 5]])).loss.isfinite()
