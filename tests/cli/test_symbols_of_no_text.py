"""Symbols that stand for no text, such as ``<pad>`` and words that pad the dictionary, are never generated."""

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
from tests.cli.checkpoints import hub, interactive, load  # noqa: E402
from tests.cli.fairseq_commands import preprocess, train  # noqa: E402


@pytest.fixture(scope="module")
def padded(word_data, tmp_path_factory):
    """A model's checkpoint and its data, with a dictionary that fairseq-preprocess has padded.

    Whatever is read, the logits are the same: those of symbols of no text are the highest, then that of word 9.
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
    """But <unk> if --unkpen favours it, and any of them that the prompt contains."""
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
    assert model.generate("", 4, temperature=0, topk=0).split() == [word] * 4
    export([str(path), "--to", str(tmp_path / "model")])
    exported, tokenizer = (kind.from_pretrained(tmp_path / "model") for kind in (AutoModelForCausalLM, AutoTokenizer))
    prompt = tokenizer("w1", return_tensors="pt")
    made = exported.generate(**prompt, max_new_tokens=4, do_sample=False)
    assert tokenizer.decode(made[0], skip_special_tokens=True).split() == ["w1", *[word] * 4]
    reading = Reading(load_explored(str(path), str(data), cpu=True))
    reading.read(prompt["input_ids"][0, 1:].tolist())
    assert reading.drawn(1, temperature=0, topk=0).argmax() == 9
