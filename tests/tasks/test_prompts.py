"""Prompts: how long they may be, and which symbols may be generated after them."""

import math
from argparse import Namespace

import pytest
import torch
from fairseq.data import Dictionary
from fairseq.tasks.language_modeling import LanguageModelingTask

from fb_fairseq.errors import UserError
from fb_fairseq.tasks.options import StreamingLMConfig
from fb_fairseq.tasks.streaming_lm import StreamingLMTask

BOS, PAD, EOS, UNK, A, B = range(6)


@pytest.fixture
def generator(monkeypatch):
    """A generator that is never asked to search, of up to 2 tokens for each of the prompt's, and 3."""
    monkeypatch.setattr(LanguageModelingTask, "inference_step", lambda *_: "continued")
    return Namespace(max_len_a=2, max_len_b=3, unk_penalty=0, token_indices_to_suppress=None)


def continued(generator, *prompts, prefix_size=None):
    """Continue prompts of one length; with ``prefix_size`` only their first words, as with --prefix-size."""
    dictionary = Dictionary()
    dictionary.add_symbol("a")
    dictionary.add_symbol("b")
    task = StreamingLMTask(StreamingLMConfig(), dictionary)
    words = torch.tensor(prompts)
    tokens = torch.cat([torch.full((len(words), 1), EOS), words], 1)
    prefix = None if prefix_size is None else words[:, :prefix_size]
    return task.inference_step(generator, [], {"net_input": {"src_tokens": tokens}, "target": 0}, prefix)


@pytest.mark.parametrize("prefix_size", [None, 6])
def test_the_longest_prompt_that_is_allowed(generator, prefix_size):
    generator.max_len_a = 0
    generator.max_len_b = 7
    prompt = [A, B, A, A, B, B]
    assert continued(generator, prompt, prefix_size=prefix_size) == "continued"
    generator.max_len_b = 6
    with pytest.raises(UserError, match="--max-len-b: 6 tokens are allowed .* and a prompt has 6; give more"):
        continued(generator, prompt, prefix_size=prefix_size)


def test_tokens_for_each_of_the_prompts(generator):
    assert continued(generator, [A] * 9) == "continued"
    generator.max_len_a, generator.max_len_b = 1, -4  # 10 with </s>
    with pytest.raises(UserError, match="6 tokens are allowed"):
        continued(generator, [A] * 9)


@pytest.mark.parametrize("symbol", [UNK, BOS])
@pytest.mark.parametrize("place", range(3))
def test_a_symbol_that_is_not_generated_but_where_a_prompt_has_it(generator, symbol, place):
    """Anywhere in any prompt, the first word included."""
    prompts = [[A, B, A], [A, B, A]]
    continued(generator, *prompts)
    assert generator.unk_penalty == math.inf and BOS in generator.token_indices_to_suppress
    prompts[1][place] = symbol
    continued(generator, *prompts)
    assert generator.unk_penalty == (0 if symbol == UNK else math.inf)
    assert (generator.token_indices_to_suppress is None) == (symbol == BOS)
    continued(generator, *prompts, prefix_size=place)
    assert generator.unk_penalty == math.inf, "the prefix ends before it"


def test_a_penalty_that_is_given_stays(generator):
    generator.unk_penalty = 0.5
    continued(generator, [A, UNK])
    assert generator.unk_penalty == 0.5
