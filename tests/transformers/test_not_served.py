"""What docs/not-served.md says: what is refused, in one line, and what to do instead."""

import re

import pytest
import torch
import torch.nn as nn

pytest.importorskip("transformers")

from transformers import DynamicCache  # noqa: E402

from fb_fairseq.errors import UserError  # noqa: E402
from fb_fairseq.transformers import FeedbackTransformerForCausalLM  # noqa: E402
from tests.conftest import REPOSITORY  # noqa: E402
from tests.transformers.models import ADAPTIVE, SHAPE, V, build  # noqa: E402

IDS = torch.arange(4, 24).view(2, 10)
traces = pytest.mark.filterwarnings("ignore")  # tracing warns of much that is meant
TRACED = ["feedback", "feedback-per-layer-spans", "transformer", "transformer-absolute", "all-attention", "lstm"]


class Logits(nn.Module):
    """A model as a function of tokens."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, ids):
        return self.model(ids, use_cache=False).logits


PAGE = (REPOSITORY / "docs/not-served.md").read_text(encoding="utf-8")
CODE = re.search(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)[1]


@pytest.fixture(scope="module")
def Block():
    """The page's class: a model as a function of tokens and memory."""
    names = {}
    exec(CODE.split("\nmodel = ")[0], names)
    return names["Block"]


@traces
@pytest.mark.parametrize("kind", TRACED)
def test_traced_models(kind):
    """By ``torch.jit.trace``, with other tokens than the example's."""
    model = build(kind)
    with torch.no_grad():
        traced = torch.jit.trace(Logits(model), IDS, check_trace=False)
        assert torch.allclose(traced(IDS + 3), model(IDS + 3).logits, atol=1e-5)
        if kind.startswith("feedback"):
            with pytest.raises(RuntimeError, match="Expected 10 elements in a list but found 9"):
                traced(IDS[:, :9])


@traces
@pytest.mark.on_ci
@pytest.mark.parametrize("kind", TRACED)
def test_exported_programs(Block, kind):
    """By ``torch.export``, with the memory; other lengths than the example's are refused."""
    model = build(kind)
    with torch.no_grad():
        memory = model(IDS).past_key_values.state.memory_KCBD
        program = torch.export.export(Block(model), (IDS, memory)).module()
        logits, new = program(IDS + 3, memory)
        by_hand, expected = Block(model)(IDS + 3, memory)
    assert torch.allclose(logits, by_hand, atol=1e-5)
    assert torch.allclose(new[:, -expected.shape[1] :], expected, atol=1e-5)  # more than adaptive spans need
    with pytest.raises((AssertionError, RuntimeError), match="10"):
        program(IDS[:, :9], memory)


@traces
def test_a_single_step(Block):
    """Its memory is that of a block, not of decoding."""
    model = build("feedback")
    with torch.no_grad():
        cache = model(IDS).past_key_values
        memory = cache.state.memory_KCBD
        program = torch.export.export(Block(model), (IDS[:, :1], memory)).module()
        logits, new = program(IDS[:, 1:2], memory)
        assert torch.allclose(logits, model(IDS[:, 1:2], past_key_values=cache).logits, atol=1e-5)
    assert new.shape == memory.shape and new[:, :-1].equal(memory[:, 1:])


@traces
@pytest.mark.on_ci
def test_the_page_itself(tmp_path, monkeypatch):
    """Its program, and that its last block's logits are those of the whole text."""
    small = build("feedback")
    small.save_pretrained(tmp_path / "model")
    monkeypatch.chdir(tmp_path)
    names = {}
    exec(CODE, names)
    with torch.no_grad():
        twice = small(torch.cat([names["text"], names["text"]], 1)).logits[:, -4:]
    assert torch.allclose(names["logits"], twice, atol=1e-4)


@traces
@pytest.mark.parametrize("kind", ["adaptive", "adaptive-tied"])
def test_adaptive_inputs_are_not_traced(kind):
    """Which bands run depends on the words: a trace would keep those of the example."""
    with pytest.raises(UserError, match="^--adaptive-input: .*use torch.compile$"):
        torch.jit.trace(Logits(build(kind)), IDS)
    softmax = build("feedback", adaptive_softmax_cutoff=ADAPTIVE["adaptive_softmax_cutoff"])
    with torch.no_grad():
        traced = torch.jit.trace(Logits(softmax), IDS, check_trace=False)
        assert torch.allclose(traced(IDS + 3), softmax(IDS + 3).logits, atol=1e-5)


def test_continuous_batching():
    """(A padded batch is continued as each text alone: test_modeling.py.)"""
    with pytest.raises(UserError, match="^generate_batch: .*call generate with a padded batch$"):
        build("feedback").generate_batch([[4, 5, 6], [7, 8]])


def test_caches_of_transformers():
    """PEFT's prefix tuning makes one; those of ``generate`` have no effect."""
    model = build("feedback")
    with pytest.raises(UserError, match="^past_key_values: a DynamicCache; give the StreamCache"):
        model(IDS, past_key_values=DynamicCache())
    texts = [model.generate(IDS, max_new_tokens=9, cache_implementation=kind) for kind in (None, "quantized")]
    assert texts[0].equal(texts[1])
    small = build("feedback", memory_storage="vectors")
    caches = [m.generate(IDS, max_new_tokens=9, return_dict_in_generate=True).past_key_values for m in (model, small)]
    assert caches[1].nbytes() < caches[0].nbytes()


def test_prompt_tuning():
    """With PEFT, as the page says; by hand, vectors before those of the tokens."""
    peft = pytest.importorskip("peft")
    model = build("feedback")
    settings = dict(task_type="CAUSAL_LM", num_virtual_tokens=3, token_dim=16, num_attention_heads=2)
    tuned = peft.get_peft_model(model, peft.PromptTuningConfig(**settings))
    tuned.train()(input_ids=IDS, attention_mask=torch.ones_like(IDS), labels=IDS).loss.backward()
    assert next(p for p in tuned.parameters() if p.requires_grad).grad.norm() > 0
    vectors = torch.cat([tuned.eval().get_prompt(2), model.get_input_embeddings()(IDS)], 1)
    found = tuned.generate(input_ids=IDS, attention_mask=torch.ones_like(IDS), max_new_tokens=4)
    assert found[:, -4:].equal(model.generate(inputs_embeds=vectors, max_new_tokens=4)[:, -4:])


def test_other_attention():
    with pytest.raises(ValueError, match="does not support an attention implementation"):
        FeedbackTransformerForCausalLM(type(build("feedback").config)(attn_implementation="sdpa"))


def test_assisted_decoding():
    with pytest.raises(ValueError, match="assisted generation is not supported with stateful models"):
        build("feedback").generate(IDS[:1], prompt_lookup_num_tokens=2, max_new_tokens=3)


def test_vllm():
    """It asks this of a model that it does not know."""
    assert not FeedbackTransformerForCausalLM._supports_attention_backend


def test_torch_jit_script():
    with pytest.raises(Exception, match="OutputLayer"):
        torch.jit.script(build("feedback"))


def test_other_embeddings():
    """Of the same size, they take part; others are refused, and nothing is changed."""
    model = build("feedback")
    before = model(IDS).logits
    new = nn.Embedding(V, SHAPE["decoder_embed_dim"])
    out = nn.Linear(SHAPE["decoder_embed_dim"], V, bias=False)
    model.set_input_embeddings(new)
    model.set_output_embeddings(out)
    assert not torch.allclose(model(IDS).logits, before)
    for method in (model.set_input_embeddings, model.set_output_embeddings):
        message = rf"^{method.__name__}: the weight's shape must be \({V}, 16\); .*base_model"
        with pytest.raises(UserError, match=message):
            method(nn.Embedding(V + 1, 16))
    assert model.get_input_embeddings() is new and model.get_output_embeddings() is out
    for kind in ("tied", "adaptive", "adaptive-tied"):
        with pytest.raises(UserError, match="not with adaptive or shared words .*share_decoder_input_output_embed"):
            build(kind).set_output_embeddings(out)
