"""Generating from prompts with fairseq's commands and its hub interface."""

import itertools
import math
import re
import shutil

import pytest
import torch

from fb_fairseq import byte_codec
from fb_fairseq.commands import preprocess_bytes
from fb_fairseq.errors import UserError
from tests.cli.checkpoints import hub, interactive, load
from tests.cli.conftest import TRANSFORMERS
from tests.cli.fairseq_commands import run, train

FEEDBACK = "feedback_transformer_lm"


def log_probs(model, dictionary, tokens):
    """Log-probabilities of what comes after ``</s>`` and these tokens, by a full forward."""
    with torch.no_grad():
        logits = model(torch.tensor([[dictionary.eos(), *tokens]]))[0][0, -1]
    return logits.log_softmax(-1)


@pytest.mark.parametrize("arch", TRANSFORMERS)
@pytest.mark.parametrize("storage", ["keys-values", "vectors"])
def test_greedy_is_the_full_forwards_argmax(byte_data, language_models, tmp_path, arch, storage):
    """Prompts of different lengths in one batch; a prompt holds a newline."""
    prompts = [r"al\nb", "a", "mi\\x20no "]
    options = ["--beam", 1, "--max-len-b", 30, "--buffer-size", 3, "--batch-size", 3]
    options += ["--model-overrides", f"{{'memory_storage': '{storage}'}}"]
    out = interactive(byte_data, language_models[arch], tmp_path, prompts, *options)
    interface = hub(language_models[arch], byte_data)
    model, dictionary = interface.models[0], interface.tgt_dict
    for prompt, line in zip(prompts, out):
        tokens = [dictionary.index(symbol) for symbol in byte_codec.encode(byte_codec.unescape(prompt.strip()))]
        while len(tokens) < 30:
            scores = log_probs(model, dictionary, tokens)
            scores[dictionary.pad()] = -math.inf
            if scores.argmax() == dictionary.eos():
                break
            tokens.append(int(scores.argmax()))
        assert byte_codec.unescape(line) == byte_codec.decode(dictionary[i] for i in tokens)


def test_beam_equals_exhaustive_search(tmp_path):
    """Three symbols, sequences of four, a beam wide enough to hold them all."""
    from fairseq.data import Dictionary
    from fairseq.data.indexed_dataset import MMapIndexedDatasetBuilder

    dictionary = Dictionary()
    for symbol in "abc":
        dictionary.add_symbol(symbol)
    dictionary.save(str(tmp_path / "dict.txt"))
    torch.manual_seed(3)
    builder = MMapIndexedDatasetBuilder(str(tmp_path / "train.bin"))
    for _ in range(60):
        builder.add_item(torch.cat([torch.randint(4, 7, (int(torch.randint(1, 4, ())),)), torch.tensor([2])]).int())
    builder.finalize(str(tmp_path / "train.idx"))
    for end in ("bin", "idx"):
        shutil.copy(tmp_path / f"train.{end}", tmp_path / f"valid.{end}")
    train(tmp_path, tmp_path / "ck", max_update=40, disable_validation=True, batch_size=2)
    model, task = load(tmp_path / "ck/checkpoint_last.pt", tmp_path)

    def total(tokens):
        with torch.no_grad():
            scores = model(torch.tensor([[2, *tokens[:-1]]]))[0].log_softmax(-1)
        return scores[0].gather(1, torch.tensor(tokens)[:, None]).sum().item()

    prompt = [5]
    # Symbols 0 and 3 (<s>, <unk>) may be generated too; </s> ends, at the latest after four tokens.
    candidates = [
        [*prompt, *middle, 2] for length in range(0, 4) for middle in itertools.product((0, 3, 4, 5, 6), repeat=length)
    ]
    best = max(candidates, key=total)
    from fairseq.dataclass.configs import GenerationConfig

    search = GenerationConfig(beam=200, max_len_b=4, unnormalized=True, nbest=1, unkpen=0)
    generator = task.build_generator([model], search)
    dataset = task.build_dataset_for_inference([torch.tensor([*prompt, 2])], [2])
    sample = next(iter(task.get_batch_iterator(dataset, max_sentences=1).next_epoch_itr(shuffle=False)))
    found = task.inference_step(generator, [model], sample)[0][0]
    assert found["tokens"].tolist() == best
    assert found["score"].item() == pytest.approx(total(best), abs=1e-4)


@pytest.mark.parametrize(
    "options",
    [
        ["--sampling", "--beam", 1],
        ["--sampling", "--sampling-topk", 3, "--temperature", 0.7, "--beam", 2, "--nbest", 2],
        ["--sampling", "--sampling-topp", 0.8, "--beam", 1],
        ["--beam", 4, "--lenpen", 0.8],
        ["--diverse-beam-groups", 2, "--beam", 4],
    ],
)
def test_search_strategies(byte_data, language_models, tmp_path, options):
    out = interactive(byte_data, language_models[FEEDBACK], tmp_path, ["ab", "c"], "--max-len-b", 20, *options)
    assert out[0].startswith("ab") and out[1].startswith("c")


def test_fairseq_generate_takes_each_document_as_a_prompt(language_models, tmp_path):
    documents = [b"one\ntwo ", b"b"]
    preprocess_bytes.binarise({"train": documents, "test": documents}, str(tmp_path))
    arguments = [tmp_path, "--task", "streaming_lm", "--path", language_models[FEEDBACK], "--cpu"]
    arguments += ["--max-len-b", 25, "--beam", 2, "--num-workers", 0, "--sample-break-mode", "eos"]
    log = run("generate", *arguments)
    found = dict(re.findall(r"^D-(\d+)\t[^\t]*\t(.*)$", log, re.M))
    assert sorted(found) == ["0", "1"], "no prompt is left out"
    for number, document in enumerate(documents):
        assert byte_codec.unescape(found[str(number)]).startswith(document)
    log = run("generate", *arguments, "--prefix-size", 2)
    assert re.findall(r"^D-0\t[^\t]*\t(.*)$", log, re.M)[0].startswith("on")


def test_hub_interface(byte_data, language_models):
    """Plain text in and out, newlines included; scores are the full forward's."""
    interface = hub(language_models[FEEDBACK], byte_data)
    assert interface.sample("al\nb", beam=2, max_len_b=20).startswith("al\nb")
    one, other = interface.sample(["a", "dee ba"], sampling=True, max_len_b=20)
    assert one.startswith("a") and other.startswith("dee ba")
    scored = interface.score("ab\n")
    dictionary = interface.tgt_dict
    tokens = [dictionary.index(symbol) for symbol in ("a", "b", "<0x0A>")]
    for i, score in enumerate(scored["positional_scores"][:3].tolist()):
        expected = log_probs(interface.models[0], dictionary, tokens[:i])[tokens[i]].item()
        assert score == pytest.approx(expected, abs=1e-5)


def test_unknown_words_are_named(byte_data, language_models):
    """(In bytes none is unknown.)"""
    task = hub(language_models[FEEDBACK], byte_data).task
    with pytest.raises(UserError, match="prompt 2: 'word' is not in dict.txt.*<unk>"):
        task.get_interactive_tokens_and_lengths(["a <unk>", "b word"], lambda line: line)
