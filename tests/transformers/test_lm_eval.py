"""lm-evaluation-harness, offline, with the tasks of examples/language_modeling/lm_eval: the model's own figures."""

import json
import logging
import math

import pytest
import torch

pytest.importorskip("transformers")
pytestmark = pytest.mark.not_fast

import fb_fairseq.transformers as ft  # noqa: E402
from fb_fairseq import byte_codec  # noqa: E402
from fb_fairseq.transformers.tokenizers import SPECIAL, build_tokenizer  # noqa: E402
from tests.conftest import REPOSITORY  # noqa: E402

TASKS = REPOSITORY / "examples/language_modeling/lm_eval"
ROLLING = dict(add_bos_token=False, max_length=100000)
DOCUMENT = "é" * 400 + "\n"
QUESTIONS = [dict(context="import", choices=["os", "zz", "a longer one"], answer=0)]
QUESTIONS += [dict(context="", choices=["def", "fed"], answer=1)]


@pytest.fixture(scope="module")
def lm_eval():
    """The harness, which must not ask the network."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_HUB_OFFLINE", "1")
        patch.setenv("HF_DATASETS_OFFLINE", "1")
        yield pytest.importorskip("lm_eval")
    for name in ("lm_eval", "datasets"):
        logging.getLogger(name).handlers.clear()


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """The folder of a byte model, the model and its tokenizer. The parameters are random, but the figures are not all
    alike."""
    torch.manual_seed(1)
    folder = str(tmp_path_factory.mktemp("model"))
    shape = dict(decoder_layers=2, decoder_embed_dim=16, decoder_attention_heads=2, decoder_ffn_embed_dim=24)
    config = ft.FeedbackTransformerConfig(vocab_size=260, attention_span=24, **shape)
    model = ft.FeedbackTransformerForCausalLM(config).eval()
    with torch.no_grad():
        model.decoder.output_projection.weight.mul_(4)
    tokenizer = build_tokenizer([*SPECIAL, *byte_codec.SYMBOLS])
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder, model, tokenizer


@pytest.fixture
def texts(tmp_path, monkeypatch):
    """The current folder, with the tasks' files."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    (tmp_path / "valid.txt").write_bytes(DOCUMENT.encode())
    (tmp_path / "cloze.jsonl").write_text("\n".join(map(json.dumps, QUESTIONS)))
    return tmp_path


def evaluate(lm_eval, folder, task, batch_size, **model_args):
    """The figures of a task by lm-eval for the model in a folder, and the responses to its samples in order."""
    from lm_eval.tasks import TaskManager

    tasks = dict(tasks=[task], task_manager=TaskManager(include_path=str(TASKS), include_defaults=False))
    model = dict(model="hf", model_args=dict(pretrained=folder, backend="causal", **model_args), device="cpu")
    result = lm_eval.simple_evaluate(**model, **tasks, batch_size=batch_size, log_samples=True, bootstrap_iters=0)
    (figures,) = result["results"].values()
    (samples,) = result["samples"].values()
    return figures, [sample["resps"] for sample in sorted(samples, key=lambda sample: sample["doc_id"])]


def nats(model, tokenizer, text, after=""):
    """Negative log-likelihood of a text after another one; the first token is predicted from </s>."""
    first = len(tokenizer(after)["input_ids"]) - 1
    ids = tokenizer(after + text, return_tensors="pt")["input_ids"]
    with torch.no_grad():
        log_probs = model(ids).logits[0, :-1].double().log_softmax(-1)
    return -log_probs.gather(1, ids[0, 1:, None])[first:].sum().item()


def test_bits_per_byte(lm_eval, exported, texts):
    """Of the file; it is one document, whose first byte is predicted from </s>."""
    folder, model, tokenizer = exported
    size = len(DOCUMENT.encode())
    figures, _ = evaluate(lm_eval, folder, "bytes", 1, **ROLLING)
    bits = nats(model, tokenizer, DOCUMENT) / math.log(2) / size
    assert figures["bits_per_byte,none"] == pytest.approx(bits, rel=1e-6)
    assert figures["byte_perplexity,none"] == pytest.approx(2**bits, rel=1e-5)
    windows, _ = evaluate(lm_eval, folder, "bytes", 1, add_bos_token=False, max_length=64)
    assert windows["bits_per_byte,none"] != pytest.approx(bits, rel=1e-4), "independent windows"
    doubled, _ = evaluate(lm_eval, folder, "bytes", 1, max_length=100000)
    assert doubled["bits_per_byte,none"] > bits + 1e-4, "</s> is predicted, too"


@pytest.mark.parametrize("batch_size", [1, 4])
def test_choices(lm_eval, exported, texts, batch_size):
    """Continuations of a text that begins with </s>."""
    folder, model, tokenizer = exported
    figures, samples = evaluate(lm_eval, folder, "cloze", batch_size)
    right = []
    for question, responses in zip(QUESTIONS, samples):
        expected = [-nats(model, tokenizer, " " + choice, question["context"]) for choice in question["choices"]]
        assert [likelihood for ((likelihood, _),) in responses] == pytest.approx(expected, rel=1e-5)
        right.append(max(range(len(expected)), key=expected.__getitem__) == question["answer"])
    assert figures["acc,none"] == sum(right) / len(right)
