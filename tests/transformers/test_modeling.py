"""The language models in transformers: blocks, steps, padding, generation, saving, training. fairseq is not needed."""

import json
import os
import re
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch

pytest.importorskip("transformers")
from safetensors.torch import load_file  # noqa: E402
from transformers import AutoConfig, AutoModelForCausalLM  # noqa: E402

import fb_fairseq.transformers as ft  # noqa: E402  before anything of transformers, as users do
from fb_fairseq.errors import UserError  # noqa: E402
from fb_fairseq.transformers import broken_torchaudio  # noqa: E402
from fb_fairseq.transformers.losses import mean_loss  # noqa: E402
from tests.conftest import REPOSITORY  # noqa: E402
from tests.transformers.models import KINDS, SPAN, V, build  # noqa: E402

LENGTHS = (20, 13, 5)


@pytest.fixture(params=KINDS)
def model(request):
    return build(request.param)


@pytest.fixture
def ids():
    return torch.randint(4, V, (3, 20), generator=torch.Generator().manual_seed(2))


def padded(ids):
    """The first tokens of each text, with padding before them; and the mask."""
    mask = torch.zeros_like(ids)
    result = torch.full_like(ids, 1)
    for row, n in enumerate(LENGTHS):
        result[row, -n:] = ids[row, :n]
        mask[row, -n:] = 1
    return result, mask


def test_blocks_and_steps(model, ids):
    """past_key_values carries the memory over blocks and steps, of any length; its size is constant."""
    whole = model(ids, use_cache=False).logits
    cache, parts, sizes = None, [], []
    for part in ids.split([6, 3, 1, 1, 5, 4], 1):
        with torch.no_grad():
            output = model(part, past_key_values=cache)
        cache = output.past_key_values
        parts.append(output.logits)
        sizes.append(cache.nbytes())
    torch.testing.assert_close(torch.cat(parts, 1), whole, atol=2e-5, rtol=1e-5)
    assert cache.get_seq_length() == 20 and len(set(sizes[3:])) == 1


def test_long_prompts_are_read_in_blocks(monkeypatch, ids):
    model = build("feedback")
    whole = model(ids).logits
    monkeypatch.setattr("fb_fairseq.transformers.cache.BLOCK_STEPS", 6)
    with torch.no_grad():
        torch.testing.assert_close(model(ids).logits, whole, atol=1e-5, rtol=1e-5)
        batch, mask = padded(ids)
        torch.testing.assert_close(model(batch, attention_mask=mask).logits[0], whole[0], atol=1e-5, rtol=1e-5)


def test_padding_takes_no_place(model, ids):
    """A text in a padded batch gets the logits that it gets alone, in blocks and in steps."""
    batch, mask = padded(ids)
    with torch.no_grad():
        output = model(batch, attention_mask=mask)
        more = torch.full((3, 1), 9)
        longer = torch.cat([mask, mask.new_ones(3, 1)], 1)
        step = model(more, attention_mask=longer, past_key_values=output.past_key_values).logits
        for row, n in enumerate(LENGTHS):
            alone = model(ids[row : row + 1, :n])
            torch.testing.assert_close(output.logits[row, -n:], alone.logits[0], atol=2e-5, rtol=1e-5)
            next_step = model(more[:1], past_key_values=alone.past_key_values).logits
            torch.testing.assert_close(step[row], next_step[0], atol=2e-5, rtol=1e-5)


def test_padding_at_the_end(model, ids):
    """As evaluation with Trainer pads: logits and loss are those of the texts alone."""
    mask = torch.stack([(torch.arange(20) < n).long() for n in LENGTHS])
    labels = ids.masked_fill(mask == 0, -100)
    with torch.no_grad():
        output = model(ids.masked_fill(mask == 0, 1), attention_mask=mask, labels=labels)
        losses = []
        for row, n in enumerate(LENGTHS):
            alone = model(ids[row : row + 1, :n], labels=ids[row : row + 1, :n])
            torch.testing.assert_close(output.logits[row, :n], alone.logits[0], atol=2e-5, rtol=1e-5)
            losses.append(alone.loss * (n - 1))
    torch.testing.assert_close(output.loss, sum(losses) / (sum(LENGTHS) - 3), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("options", [dict(), dict(num_beams=3), dict(num_beams=2, num_return_sequences=2)])
def test_generation(model, ids, options):
    """Padded prompts are continued as alone, and as without a cache."""
    batch, mask = padded(ids)
    options = dict(max_new_tokens=12, do_sample=False, pad_token_id=1, **options)
    together = model.generate(batch, attention_mask=mask, **options)
    repeats = options.get("num_return_sequences", 1)
    for row, n in enumerate(LENGTHS):
        prompt = ids[row : row + 1, :n]
        alone = model.generate(prompt, attention_mask=torch.ones_like(prompt), **options)[:, n:]
        own = together[row * repeats : (row + 1) * repeats, 20 : 20 + alone.shape[1]]
        assert own.tolist() == alone.tolist()
        uncached = model.generate(prompt, attention_mask=torch.ones_like(prompt), use_cache=False, **options)[:, n:]
        assert uncached.tolist() == alone.tolist()


@pytest.mark.parametrize("kind", ["feedback", "transformer", "lstm"])
def test_generation_in_training_mode(kind, ids):
    """Without dropout, as in evaluation mode: models are in training mode after ``Trainer.train()``."""
    model = build(kind)
    batch, mask = padded(ids)
    options = dict(attention_mask=mask, max_new_tokens=8, do_sample=False, pad_token_id=1)
    expected = model.generate(batch, **options)
    assert model.train().generate(batch, **options).tolist() == expected.tolist()


def test_saving(model, ids, tmp_path):
    """The same logits to the bit; tied parameters are saved once, and stay tied."""
    logits = model(ids).logits
    model.save_pretrained(tmp_path)
    again = AutoModelForCausalLM.from_pretrained(tmp_path).eval()
    assert again(ids).logits.equal(logits)
    assert sum(p.numel() for p in again.parameters()) == sum(p.numel() for p in model.parameters())
    assert type(AutoConfig.from_pretrained(tmp_path)) is type(model.config)
    half = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.bfloat16)
    assert all(p.dtype == torch.bfloat16 for p in half.parameters())
    with torch.no_grad():
        assert half(ids).logits.float().sub(logits).abs().max() < 0.1 * logits.abs().max()


@pytest.mark.parametrize("kind", ["tied", "adaptive-tied"])
def test_tied_words_are_saved_as_embeddings(kind, tmp_path):
    """Files of other versions have these names, too."""
    build(kind).save_pretrained(tmp_path)
    names = load_file(tmp_path / "model.safetensors").keys()
    assert any(".embed_tokens." in name for name in names)
    assert not any(re.search(r"output_projection|word_proj|tail\.\d\.2", name) for name in names)


@pytest.mark.parametrize("device_map", ["cpu", "auto"])
def test_device_map(device_map, model, ids, tmp_path):
    """As accelerate places the model; also from several files of parameters."""
    pytest.importorskip("accelerate")
    model.save_pretrained(tmp_path, max_shard_size="4KB")
    assert len(list(tmp_path.glob("model-*.safetensors"))) > 1 and not (tmp_path / "model.safetensors").exists()
    placed = AutoModelForCausalLM.from_pretrained(tmp_path, device_map=device_map)
    with torch.no_grad():
        output = placed(ids.to(placed.device))
        if device_map == "cpu" or placed.device.type == "cpu":
            assert output.logits.equal(model(ids).logits)
        torch.testing.assert_close(output.logits.cpu(), model(ids).logits, atol=1e-4, rtol=1e-4)
        options = dict(attention_mask=torch.ones_like(ids), pad_token_id=1, max_new_tokens=3, do_sample=False)
        assert placed.generate(ids.to(placed.device), **options).shape == (3, 23)


def test_loss(model, ids):
    """Mean negative log-likelihood of the next tokens; its gradients reach every parameter."""
    labels = ids.clone()
    labels[0, :5] = -100
    log_probs = model(ids).logits[:, :-1].float().log_softmax(-1)
    counted = labels[:, 1:] != -100
    expected = -log_probs.gather(-1, ids[:, 1:, None])[..., 0][counted].mean()
    torch.testing.assert_close(model(ids, labels=labels).loss, expected, atol=1e-5, rtol=1e-5)
    halves = model(ids, labels=labels, num_items_in_batch=2 * int(counted.sum())).loss
    torch.testing.assert_close(halves, expected / 2, atol=1e-5, rtol=1e-5)
    loss = model.train()(ids, labels=labels).loss
    loss.backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())
    for name, p in model.named_parameters():
        assert "adaptive_span" in name or p.grad.abs().max() > 0, name
    features = torch.zeros(3, 20, 16, device="meta")
    mean_loss(build("feedback").to("meta").decoder, features, ids, None)  # labels may be on another device


@pytest.mark.parametrize("kind", ["feedback", "transformer", "all-attention"])
def test_gradient_checkpointing(kind, ids):
    """Activations are computed again; gradients stay the same."""
    gradients = []
    for checkpointing in (False, True):
        model = build(kind).train()
        if checkpointing:
            model.gradient_checkpointing_enable()
            assert model.decoder.stack.options.checkpoint_activations and model.is_gradient_checkpointing
        model(ids, labels=ids).loss.backward()
        gradients.append({name: p.grad for name, p in model.named_parameters()})
    torch.testing.assert_close(*gradients)


def test_bytes_of_a_memory(ids):
    """Nothing, that of blocks, that of decoding."""
    model = build("transformer")
    with torch.no_grad():
        cache = model(ids).past_key_values
        assert cache.nbytes() == cache.state.memory_KCBD.nbytes > 0
        cache = model(ids[:, :1], past_key_values=cache).past_key_values
        assert cache.nbytes() > 0
    assert len(cache) == 1
    cache.reset()
    assert cache.nbytes() == 0


def test_span_penalty(ids):
    """In training, the loss includes the adaptive spans' penalty, per token."""
    spans = dict(adaptive_span=True, adaptive_span_init=0.5)
    plain = build("feedback", **spans).train()(ids, labels=ids).loss
    model = build("feedback", **spans, adaptive_span_loss=0.01).train()
    penalty = 2 * 0.01 * SPAN * 0.5
    torch.testing.assert_close(model(ids, labels=ids).loss, plain + penalty)
    torch.testing.assert_close(model.eval()(ids, labels=ids).loss, plain)


def test_bad_input(tmp_path, ids):
    model = build("feedback")
    gap = torch.ones_like(ids)
    gap[0, 3] = 0
    with pytest.raises(UserError, match="attention_mask: has padding between tokens; pad at the beginning"):
        model(ids, attention_mask=gap)
    right = torch.ones_like(ids)
    right[0, -3:] = 0
    with pytest.raises(UserError, match="attention_mask: has padding at the end; pad on the left"):
        model(ids, attention_mask=right, use_cache=True)
    with pytest.raises(UserError, match="past_key_values: its texts were padded at the end; pad at the beginning to"):
        model(ids, past_key_values=model(ids, attention_mask=right).past_key_values)
    cache = model(ids).past_key_values
    with pytest.raises(UserError, match="past_key_values holds the beginning of these texts"):
        model(ids, attention_mask=torch.cat([torch.ones_like(ids), 1 - right], 1), past_key_values=cache)
    with pytest.raises(UserError, match="cannot forget its last steps"):
        cache.crop(3)
    with pytest.raises(UserError, match="memory_storage all: unknown; choose from keys-values, vectors"):
        ft.FeedbackTransformerConfig(memory_storage="all")
    model.save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "memory_composition": "layer:9"}))
    with pytest.raises(UserError, match="--memory-composition layer:9: give layer:0"):
        AutoModelForCausalLM.from_pretrained(tmp_path)


@pytest.mark.slow
def test_broken_torchaudio(tmp_path):
    """transformers works beside a torchaudio that was built for another torch."""
    pytest.importorskip("accelerate")
    (tmp_path / "torchaudio").mkdir()
    (tmp_path / "torchaudio/__init__.py").write_text("raise RuntimeError('compiled with different CUDA versions')\n")
    program = "import fb_fairseq.transformers; from transformers import Trainer, pipeline; print(Trainer.__name__)"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(REPOSITORY)])}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment, timeout=300)
    assert done.stdout == "Trainer\n", done.stderr[-2000:]


def test_no_torchaudio_where_it_cannot_be_imported(monkeypatch):
    def fail(name):
        raise RuntimeError(f"{name}: compiled with different CUDA versions")

    found = SimpleNamespace(find_spec=lambda name: name)
    monkeypatch.setattr(broken_torchaudio, "importlib", SimpleNamespace(util=found, import_module=fail))
    modules = (broken_torchaudio.utils, broken_torchaudio.import_utils)
    for module in modules:
        monkeypatch.setattr(module, "is_torchaudio_available", lambda: True)
    broken_torchaudio.ignore_broken_torchaudio()
    assert not any(module.is_torchaudio_available() for module in modules)
