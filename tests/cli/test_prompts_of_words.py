"""Generation from models of words: temperatures, prompts with ``</s>`` or ``<pad>``, and empty ones."""

import math
import re

import pytest
import torch

from fb_fairseq.commands.read_model import read_language_model
from fb_fairseq.errors import UserError
from fb_fairseq.pretrained.model import choices, sample
from tests.cli.checkpoints import hub, interactive, load
from tests.cli.fairseq_commands import options, preprocess, run, train
from tests.cli.words import ADAPTIVE


@pytest.fixture(scope="module")
def adaptive(word_data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("adaptive")
    train(word_data, folder, max_update=20, disable_validation=True, adaptive_softmax_bias=True, **ADAPTIVE)
    return folder / "checkpoint_last.pt"


def tempered(lprobs, temperature):
    return (lprobs.double() / temperature).log_softmax(-1).float()


@pytest.mark.parametrize("temperature", [0.05, 0.5, 3.0])
def test_temperature(word_data, adaptive, temperature):
    """With an adaptive softmax, p^(1/T) in fairseq's generator, alone and in an ensemble, as in our own tools."""
    from fairseq.sequence_generator import EnsembleModel

    model, task = load(adaptive, word_data)
    tokens = torch.tensor([[2, 7, 9], [2, 30, 60]])  # 2: </s>
    lprobs = model.get_normalized_probs(model(tokens), log_probs=True)[:, -1]
    for models in ([model], [model, model]):
        ensemble = EnsembleModel(models)
        states = [{} for _ in models]
        for length in (1, 2, 3):  # as in a search; the last step is compared
            found, _ = ensemble.forward_decoder(tokens[:, :length], [], states, temperature)
        torch.testing.assert_close(found, tempered(lprobs, temperature), atol=2e-4, rtol=1e-4)
    probabilities, symbols = choices(lprobs[0], never=[1], temperature=temperature, topk=0)  # 1: <pad>
    mine = torch.zeros_like(lprobs[0]).scatter(0, symbols, probabilities)
    expected = tempered(lprobs[0].index_fill(0, torch.tensor([1]), -math.inf), temperature).exp()
    torch.testing.assert_close(mine, expected, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("prompt", ["w1 </s> w2", "</s> w1", "w1 </s>", "</s>"])
def test_line_ends_in_prompts(word_data, adaptive, tmp_path, prompt):
    """Refused, as fairseq's search would drop or move what follows; our own command continues them."""
    message = "prompt.* </s>.*use fb-fairseq generate"
    with pytest.raises(UserError, match=message):
        interactive(word_data, adaptive, tmp_path, [prompt], "--max-len-b", 9, "--beam", 1)
    with pytest.raises(UserError, match=message):
        hub(adaptive, word_data).sample(prompt, beam=1, max_len_b=9)
    model = read_language_model(str(adaptive), str(word_data), cpu=True)
    symbols = model.vocabulary.encode_prompt(prompt)
    continued = sample(model.reader(5), symbols, 5, temperature=0, topk=0, vocabulary=model.vocabulary)
    assert len(list(continued)) == 5


@pytest.mark.parametrize("prompt", ["w1 <pad> w2", "<pad> w1"])
def test_padding_in_prompts(word_data, adaptive, tmp_path, prompt):
    message = "prompt 1: <pad> in it, which is no word; leave it out"
    with pytest.raises(UserError, match=message):
        interactive(word_data, adaptive, tmp_path, [prompt], "--max-len-b", 9, "--beam", 1)
    interface = hub(adaptive, word_data)
    with pytest.raises(UserError, match=message):
        interface.sample(prompt, beam=1, max_len_b=9)
    with pytest.raises(UserError, match=message):
        interface.score(prompt)


def test_line_ends_in_scored_texts(word_data, adaptive):
    interface = hub(adaptive, word_data)
    scored = interface.score("w1 </s> w2 w3")["positional_scores"]
    tokens = torch.tensor([[2, *(interface.tgt_dict.index(word) for word in ("w1", "</s>", "w2", "w3"))]])
    model = interface.models[0]
    lprobs = model.get_normalized_probs(model(tokens[:, :-1]), log_probs=True)[0].gather(1, tokens[0, 1:, None])[:, 0]
    torch.testing.assert_close(scored[:4], lprobs, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("more", [{}, {"score_reference": True, "scoring": "sacrebleu"}, {"beam": 3}])
def test_blank_lines_as_prompts(word_data, adaptive, tmp_path, more):
    """They are continued, or scored, as a mean of nothing; fairseq's BLEU of an empty reference does not crash."""
    (tmp_path / "test").write_text("w1 w2\n\nw3\n\n")
    preprocess(tmp_path, ("test",), only_source=True, srcdict=word_data / "dict.txt")
    values = dict(task="streaming_lm", path=adaptive, cpu=True, sample_break_mode="eos", max_len_b=9, num_workers=0)
    log = run("generate", tmp_path / "bin", *options({**values, "beam": 1, **more}))
    scores = {int(n): float(score) for n, score in re.findall(r"^H-(\d+)\t(\S+)\t", log, re.M)}
    assert sorted(scores) == [0, 1, 2, 3]
    assert [n for n, score in scores.items() if score != score] == ([1, 3] if "score_reference" in more else [])
