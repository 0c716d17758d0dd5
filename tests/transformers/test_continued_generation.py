"""Generation that goes on from a memory, with the new tokens or with the whole text."""

import copy

import pytest
import torch

pytest.importorskip("transformers")
from transformers import GenerationConfig, LogitsProcessorList  # noqa: E402
from transformers.generation import BaseStreamer  # noqa: E402

from fb_fairseq.errors import UserError  # noqa: E402
from fb_fairseq.transformers.known_text import KnownText  # noqa: E402
from tests.transformers.models import V, build  # noqa: E402

IDS = torch.randint(4, V, (2, 12), generator=torch.Generator().manual_seed(3))
HEADER, END, OTHER_END = torch.randint(4, 20, (2, 75), generator=torch.Generator().manual_seed(4)).split([40, 5, 30], 1)
READ = torch.cat([HEADER, END], 1)
NEW = torch.cat([HEADER, OTHER_END], 1)
OPTIONS = dict(max_new_tokens=5, do_sample=False, suppress_tokens=[1, 2])  # no padding, and no end


@torch.no_grad()
def memory_of(model, ids, **mask):
    """What a model keeps of texts that it has read."""
    return model(ids, use_cache=True, **mask).past_key_values


@pytest.mark.parametrize("kind", ["feedback", "transformer", "lstm", "feedback-vectors"])
@pytest.mark.parametrize("beams", [1, 3])
@pytest.mark.parametrize("first", [4, 9])
def test_goes_on(kind, beams, first):
    """As from the whole text without a memory."""
    model = build(kind)
    options = dict(**OPTIONS, num_beams=beams)
    expected = model.generate(IDS, **options)
    read = IDS[:, :first]
    new = IDS[:, first:]
    for mask in (None, torch.ones_like(new), torch.ones_like(IDS)):
        found = model.generate(new, attention_mask=mask, past_key_values=memory_of(model, read), **options)
        assert found.equal(expected[:, first:])
    assert model.generate(input_ids=new, past_key_values=memory_of(model, read), **options).equal(expected[:, first:])
    assert model.generate(IDS, past_key_values=memory_of(model, read), **options).equal(expected)
    config = GenerationConfig(**options)
    assert model.generate(new, config, past_key_values=memory_of(model, read)).equal(expected[:, first:])
    made = model.generate(new, past_key_values=memory_of(model, read), return_dict_in_generate=True, **options)
    assert made.sequences.equal(expected[:, first:])


def test_where_a_text_begins():
    """After what was read, if it is new; there again, if it begins with all that was read since then; or at 0."""
    text, first, second = KnownText(complete=True), torch.arange(8).view(2, 4), torch.arange(20, 26).view(2, 3)
    longer = torch.cat([second, second], 1)
    starts = []
    inputs = first, second, longer, torch.cat([first, longer, second], 1)
    for tokens, read, new in zip(inputs, (0, 4, 7, 10), (4, 3, 3, 3)):
        text.begin(tokens, read)
        starts.append(text.start)
        text.add(tokens[:, -new:])
    assert starts == [0, 4, 4, 0]


def test_a_memory_that_was_reset():
    """A new text begins at the first position."""
    model = build("transformer-absolute")
    memory = memory_of(model, IDS)
    memory.reset()
    assert memory.get_seq_length() == 0
    found = model(NEW, past_key_values=memory, use_cache=True)
    torch.testing.assert_close(found.logits, model(NEW).logits, atol=1e-5, rtol=1e-5)
    assert found.past_key_values.get_seq_length() == NEW.shape[1]


@torch.no_grad()
def test_the_whole_text_after_new_tokens_alone():
    """It is known from its beginning on, not only from where the new tokens began."""
    model = build("feedback")
    memory = memory_of(model, IDS[:, :4])
    new = model.generate(IDS[:, 4:6], past_key_values=memory, **OPTIONS)
    whole = torch.cat([IDS[:, :4], new, IDS[:, 6:9]], 1)
    found = model.generate(whole, past_key_values=memory, **OPTIONS)
    assert found.equal(model.generate(whole, **OPTIONS))


def test_length():
    """Counts the new text alone."""
    model = build("feedback")
    made = model.generate(IDS[:, 9:], past_key_values=memory_of(model, IDS[:, :9]), max_length=5, do_sample=False)
    assert made.shape == (2, 5)


@pytest.mark.parametrize(
    "read,given,message",
    [
        # One row begins with the token that was read, the other one does not.
        (IDS[:, :1], IDS[:, 1:], "^input_ids: some rows begin with the text .* give whole texts"),
        (IDS[:, :9], IDS[:1, 9:], "past_key_values: holds 2 texts, not 1; give as many"),
        (IDS[:, :9], IDS[:, :9], "past_key_values: has read this text already"),
    ],
    ids=["some-rows", "fewer-texts", "nothing-new"],
)
def test_refusals(read, given, message):
    model = build("feedback")
    with pytest.raises(UserError, match=message):
        model.generate(given, past_key_values=memory_of(model, read), **OPTIONS)


@torch.no_grad()
def test_the_memory_knows_what_it_has_read():
    """Also after a call that was refused, and if the caller puts the next token into the same tensor."""
    model = build("feedback")
    cache = memory_of(model, IDS[:, :6])
    with pytest.raises(UserError, match="attention_mask: of shape 2x5 "):
        model(IDS[:, 6:7], past_key_values=cache, attention_mask=torch.ones(2, 5))
    with pytest.raises(UserError, match="2 streams"):
        model(IDS[:1, 6:8], past_key_values=cache)
    buffer = torch.empty_like(IDS[:, :1])
    for t in (6, 7, 8):
        buffer.copy_(IDS[:, t : t + 1])
        model(buffer, past_key_values=cache)
    with pytest.raises(UserError, match="past_key_values: has read this text already"):
        model.generate(IDS[:, :9], past_key_values=cache, **OPTIONS)


@torch.no_grad()
def test_a_failure_leaves_the_memory_as_it_was(monkeypatch):
    """Of long texts, which are read in several blocks, the first ones are read again."""
    model = build("transformer")
    monkeypatch.setattr("fb_fairseq.transformers.cache.BLOCK_STEPS", 4)
    expected = model(IDS).logits[:, 4:]
    cache = memory_of(model, IDS[:, :4])
    run = model.decoder.stack.run_block
    blocks = iter((run,))
    monkeypatch.setattr(model.decoder.stack, "run_block", lambda *given: next(blocks)(*given))
    with pytest.raises(StopIteration):
        model(IDS[:, 4:], past_key_values=cache)
    monkeypatch.setattr(model.decoder.stack, "run_block", run)
    torch.testing.assert_close(model(IDS[:, 4:], past_key_values=cache).logits, expected)


@pytest.mark.parametrize("pads", [0, 3])
def test_a_text_that_begins_like_another(pads):
    """All tokens of a memory's text are compared; and a conversation goes on in it."""
    model = build("feedback")
    read = READ.clone()
    read[0, :pads] = 1
    mask = torch.ones_like(read)
    mask[0, :pads] = 0

    def mask_with(new):
        return torch.cat([mask, torch.ones_like(new)], 1)

    def after(new):
        whole = torch.cat([read, new], 1)
        return model.generate(whole, attention_mask=mask_with(new), **OPTIONS)[:, read.shape[1] :]

    expected = after(NEW)
    cache = memory_of(model, read, attention_mask=mask)
    copied = copy.deepcopy(cache)
    assert model.generate(NEW, past_key_values=copied, attention_mask=mask_with(NEW), **OPTIONS).equal(expected)
    found = model.generate(NEW, past_key_values=cache, **OPTIONS)
    assert found.equal(expected)
    more = torch.cat([found, HEADER[:, :4]], 1)
    again = model.generate(more, past_key_values=cache, **OPTIONS)
    assert again.equal(after(more))
    third = torch.cat([again, HEADER[:, :3]], 1)
    assert model.generate(third, past_key_values=cache, **OPTIONS).equal(after(third)), (
        "all of the text since the first call is recognised"
    )


def test_processors_and_streamers_see_the_new_text():
    model = build("feedback")
    lengths = []
    tokens = []

    def processor(text, scores):
        lengths.append(text.shape[1])
        return scores

    class Streamer(BaseStreamer):
        def put(self, new):
            tokens.extend(new.flatten().tolist())

        def end(self):
            pass

    cache = memory_of(model, READ[:1])
    options = dict(**OPTIONS, logits_processor=LogitsProcessorList([processor]), streamer=Streamer())
    found = model.generate(NEW[:1], past_key_values=cache, **options)
    assert lengths == [70, 71, 72, 73, 74] and tokens == found[0].tolist()
