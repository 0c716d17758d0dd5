"""Generation from models of words: prompts with ``</s>``, empty ones, temperatures, and defaults that tools share."""

import math
import re

import pytest
import torch

pytest.importorskip("transformers")
import fb_fairseq.transformers  # noqa: E402, F401  before anything of transformers, as users do

# isort: split
from transformers import AutoModelForCausalLM, AutoTokenizer  # noqa: E402

from fb_fairseq.commands.explore.reading import Reading  # noqa: E402
from fb_fairseq.commands.explore.reading import load as load_explored  # noqa: E402
from fb_fairseq.commands.export.command import main as export  # noqa: E402
from fb_fairseq.commands.read_model import read_language_model  # noqa: E402
from fb_fairseq.errors import UserError  # noqa: E402
from fb_fairseq.pretrained.model import choices, sample  # noqa: E402
from tests.cli.checkpoints import hub, interactive, load  # noqa: E402
from tests.cli.fairseq_commands import options, preprocess, run, train  # noqa: E402
from tests.cli.words import ADAPTIVE  # noqa: E402


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
    tokens = torch.tensor([[2, 7, 9], [2, 30, 60]])
    lprobs = model.get_normalized_probs(model(tokens), log_probs=True)[:, -1]
    for models in ([model], [model, model]):
        ensemble = EnsembleModel(models)
        states = [{} for _ in models]
        for length in (1, 2, 3):
            found, _ = ensemble.forward_decoder(tokens[:, :length], [], states, temperature)
        torch.testing.assert_close(found, tempered(lprobs, temperature), atol=2e-4, rtol=1e-4)
    probabilities, symbols = choices(lprobs[0], [1], temperature, 0)
    mine = torch.zeros_like(lprobs[0]).scatter(0, symbols, probabilities)
    expected = tempered(lprobs[0].index_fill(0, torch.tensor([1]), -math.inf), temperature).exp()
    torch.testing.assert_close(mine, expected, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("prompt", ["w1 </s> w2", "</s> w1", "w1 </s>", "w1 <pad> w2", "<pad> w1"])
def test_line_ends_and_padding_in_prompts(word_data, adaptive, tmp_path, prompt):
    """fairseq's search would drop or move the rest: they are refused; our own command continues line ends."""
    padding = "<pad> in it, which is no word; leave it out"
    message = padding if "<pad>" in prompt else "prompt.* </s>.*use fb-fairseq generate"
    with pytest.raises(UserError, match=message):
        interactive(word_data, adaptive, tmp_path, [prompt], "--max-len-b", 9, "--beam", 1)
    interface = hub(adaptive, word_data)
    with pytest.raises(UserError, match=message):
        interface.sample(prompt, beam=1, max_len_b=9)
    if "<pad>" in prompt:
        with pytest.raises(UserError, match=message):
            interface.score(prompt)
        return
    model = read_language_model(str(adaptive), str(word_data), True)
    assert len(list(sample(model.reader(5), model.vocabulary.encode_prompt(prompt), 5, 0, 0, model.vocabulary))) == 5


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


@pytest.fixture(scope="module")
def padded(word_data, tmp_path_factory):
    """A model's checkpoint and its data, with a dictionary that fairseq-preprocess has padded.

    Whatever it has read, logits are the same: highest of symbols of no text, then of symbol 9.
    """
    folder = tmp_path_factory.mktemp("padded")
    splits = ("train", "valid")
    data = preprocess(word_data.parent, splits, only_source=True, padding_factor=64, destdir=folder / "bin")
    train(data, folder, max_update=1, disable_validation=True, no_epoch_checkpoints=True)
    path = folder / "checkpoint_last.pt"
    saved = torch.load(path, weights_only=True)
    saved["model"]["decoder.layer_norm.weight"].zero_()  # the features are its bias: all ones
    saved["model"]["decoder.layer_norm.bias"].fill_(1.0)
    logits = torch.linspace(-1, 0, 128)
    logits[[0, 1, 3, 9]] = torch.tensor([3.0, 4.0, 5.0, 2.0])  # <s>, <pad>, <unk>, and a word
    logits[104:] = 6.0  # madeupword0000, …
    saved["model"]["decoder.output_projection.weight"] = logits[:, None].expand(-1, 16) / 16
    torch.save(saved, path)
    return path, data


def test_fairseqs_search_generates_no_symbols_of_no_text(padded, tmp_path):
    """<s>, <pad>, <unk> and words that pad the dictionary, but <unk> with --unkpen, and any of them in a prompt."""
    path, data = padded
    _, task = load(path, data)
    word, last = (task.source_dictionary[index] for index in (9, 127))
    assert last == "madeupword0023"
    more = ("--beam", 1, "--max-len-b", 5, "--min-len", 5)
    expected = " ".join(["w1", *[word] * 4])
    assert interactive(data, path, tmp_path, ["w1"], *more) == [expected]
    assert hub(path, data).sample("w1", beam=1, max_len_b=5, min_len=5) == expected
    assert interactive(data, path, tmp_path, ["w1"], *more, "--unkpen", -0.1)[0].startswith("w1 <unk>")
    for prompt in ("w1 <unk>", f"w1 {last}"):
        assert interactive(data, path, tmp_path, [prompt], *more)[0].startswith(prompt)


def test_our_tools_generate_no_symbols_of_no_text(padded, tmp_path):
    path, data = padded
    model = read_language_model(str(path), cpu=True)
    word = model.vocabulary.symbols[9]
    assert model.generate("", 4, 0, 0).split() == [word] * 4
    export([str(path), "--to", str(tmp_path / "model")])
    exported, tokenizer = (kind.from_pretrained(tmp_path / "model") for kind in (AutoModelForCausalLM, AutoTokenizer))
    prompt = tokenizer("w1", return_tensors="pt")
    made = exported.generate(**prompt, max_new_tokens=4, do_sample=False)
    assert tokenizer.decode(made[0], skip_special_tokens=True).split() == ["w1", *[word] * 4]
    reading = Reading(load_explored(str(path), str(data), True))
    reading.read(prompt["input_ids"][0, 1:].tolist())
    assert reading.drawn(1, 0, 0).argmax() == 9
