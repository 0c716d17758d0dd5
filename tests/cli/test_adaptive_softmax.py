"""Adaptive input and softmax through fairseq: trained and evaluated; contradictions are refused."""

import math

import pytest
import torch

from fb_fairseq.errors import UserError
from tests.cli.checkpoints import eval_lm, load, loss_in
from tests.cli.fairseq_commands import json_logs, train
from tests.cli.words import ADAPTIVE


def test_loss_is_exact(word_data, tmp_path):
    """Validation, fairseq-eval-lm's scorer, and the full distribution by hand agree, words of all clusters included."""
    changes = dict(arch="all_attention_lm", max_update=60, valid_streams=2, adaptive_softmax_bias=True)
    log = train(word_data, tmp_path, **ADAPTIVE, **changes)
    logged = json_logs(log, "valid")[-1]
    model, task = load(tmp_path / "checkpoint_last.pt", word_data)
    task.load_dataset("valid")
    corpus = task.dataset("valid").corpus
    bits = 0.0
    correct = 0
    n = len(corpus)
    for b in range(2):
        tokens = corpus[b * n // 2 - 1 : (b + 1) * n // 2]  # a stream, and the token before it
        with torch.no_grad():
            log_probs = model.get_normalized_probs(model(tokens[None, :-1]), log_probs=True)[0]
        assert log_probs.exp().sum(-1).allclose(torch.ones(len(tokens) - 1), atol=1e-4)
        bits -= log_probs.double().gather(1, tokens[1:, None]).sum().item() / math.log(2)
        correct += log_probs.argmax(-1).eq(tokens[1:]).sum().item()
    assert float(logged["valid_total_tokens"]) == n
    assert float(logged["valid_total_bits"]) == pytest.approx(bits, rel=1e-5)
    assert float(logged["valid_accuracy"]) == pytest.approx(100 * correct / n, abs=0.01)
    first, last = (float(json_logs(log, "train_inner")[i]["loss"]) for i in (0, -1))
    assert last < first - 0.5
    biases = [p for name, p in model.decoder.adaptive_softmax.named_parameters() if name.endswith("bias")]
    assert len(biases) == 3 and all(p.abs().max() > 0 for p in biases), "they are trained"
    cut = dict(gen_subset="valid", valid_streams=2, tokens_per_sample=7, softmax_batch=16)
    out = eval_lm(word_data, tmp_path / "checkpoint_last.pt", **cut)
    assert loss_in(out) == pytest.approx(bits / n, abs=1e-4)


def test_another_criterion(word_data, tmp_path):
    """It does not know the model's clusters."""
    with pytest.raises(UserError, match="--criterion: another .* ignores --adaptive-softmax-cutoff; use"):
        train(word_data, tmp_path, max_update=3, valid_streams=2, **ADAPTIVE, criterion="cross_entropy")
