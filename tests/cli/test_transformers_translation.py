"""Translation models in transformers: the same logits and translations as fairseq's; there and back."""

import argparse
import json
import re
import shutil

import pytest
import torch

pytest.importorskip("transformers")

from transformers import AutoModelForSeq2SeqLM, AutoTokenizer  # noqa: E402

from fb_fairseq.commands.export.command import main as export  # noqa: E402
from fb_fairseq.commands.export.models import transformers_model  # noqa: E402
from fb_fairseq.commands.import_transformers import main as import_transformers  # noqa: E402
from fb_fairseq.models.checkpoints import plain_options  # noqa: E402
from fb_fairseq.models.feedback_decoder import feedback_decoder  # noqa: E402
from fb_fairseq.trained_model import LEFT_OUT, TrainedModel  # noqa: E402
from tests.cli.checkpoints import assert_same_parameters  # noqa: E402
from tests.cli.own_commands import one_line  # noqa: E402
from tests.cli.parallel_text import bleu, generate, hypotheses, pairs, preprocess, train  # noqa: E402
from tests.models.decoders import SIZES, batch, build, dictionary  # noqa: E402

PAD, EOS = 1, 2
SHARED = dict(share_decoder_input_output_embed=True)
OPTIONS = {
    "post-norm": dict(),
    "pre-norm": dict(decoder_normalize_before=True, encoder_normalize_before=True, memory_projections="per-layer"),
    "learned": dict(memory_composition="same-and-lower", decoder_learned_pos=True, encoder_learned_pos=True),
    "narrow": dict(memory_composition="previous", memory_projections="per-layer", encoder_embed_dim=9, **SHARED),
    "norms": dict(layernorm_embedding=True, no_scale_embedding=True, activation_fn="gelu"),
    "adaptive": dict(adaptive_softmax_cutoff=[6, 10], no_token_positional_embeddings=True, **SHARED),
    "no-final-norm": dict(decoder_normalize_before=True, no_decoder_final_norm=True, memory_storage="vectors"),
}


@pytest.fixture(params=OPTIONS)
def both(request, tmp_path):
    """A model of fairseq, and what the functions of the command make of it."""
    torch.manual_seed(3)
    options = OPTIONS[request.param]
    theirs = build(**options)
    given = argparse.Namespace(**{**SIZES, **options})
    feedback_decoder(given)
    options = {**plain_options(vars(given)), "arch": "feedback_decoder"}
    parameters = {name: value for name, value in theirs.state_dict().items() if not LEFT_OUT.match(name)}
    symbols = {f"dict.{name}.txt": dictionary(words).symbols for name, words in (("de", 11), ("en", 14))}
    task = {"source_lang": "de", "target_lang": "en"}
    return theirs, transformers_model(TrainedModel("checkpoint.pt", options, parameters, task, symbols))


def test_logits(both):
    """Of padded sources and targets, whole and step by step."""
    theirs, ours = both
    source = batch([7, 3, 5])
    target = batch([4, 6, 2])
    target[:, 0] = EOS
    with torch.no_grad():
        net = theirs(source, source.ne(PAD).sum(1), target)
        expected = theirs.get_normalized_probs(net, log_probs=True)
        output = ours(source, decoder_input_ids=target, use_cache=False)
        logits = output.logits.log_softmax(-1)
        real = target.ne(PAD)
        torch.testing.assert_close(logits[real], expected[real], atol=1e-6, rtol=1e-5)
        cache, steps = None, []
        for tokens in target.split([1, 2, 1, 2], 1):
            step = ours(source, decoder_input_ids=tokens, past_key_values=cache)
            cache = step.past_key_values
            steps.append(step.logits.log_softmax(-1))
    torch.testing.assert_close(torch.cat(steps, 1)[real], expected[real], atol=1e-5, rtol=1e-5)


@pytest.fixture(scope="module")
def trained(translation_models, tmp_path_factory):
    """A checkpoint, and the folder that it is exported to."""
    checkpoint = translation_models / "feedback/checkpoint_best.pt"
    model = tmp_path_factory.mktemp("exported") / "model"
    export([str(checkpoint), "--to", str(model)])
    return checkpoint, model


def translations(folder, beam):
    """Of the test split's sentences by an exported model, in one padded batch: texts by number."""
    sources = [source for source, _ in pairs(30, 2)]
    batch = AutoTokenizer.from_pretrained(folder)(sources, return_tensors="pt", padding=True)
    output = AutoModelForSeq2SeqLM.from_pretrained(folder).generate(**batch, num_beams=beam)
    texts = AutoTokenizer.from_pretrained(folder, subfolder="target").batch_decode(output, skip_special_tokens=True)
    return dict(enumerate(texts))


@pytest.mark.parametrize("beam", [1, 5])
def test_translations(parallel_data, trained, beam):
    """Greedy and beam search give fairseq-generate's translations."""
    checkpoint, folder = trained
    log = generate(parallel_data, checkpoint, beam=beam)
    assert bleu(log) > 5
    assert translations(folder, beam) == hypotheses(log)


@pytest.mark.parametrize("beam", [1, 5])
def test_no_translation_is_empty(parallel_data, trained, tmp_path, beam):
    """As with fairseq-generate, whose --min-len is 1; here of a model that would end anywhere."""
    saved = torch.load(trained[0], weights_only=False)
    checkpoint = tmp_path / "ends.pt"
    folder = tmp_path / "ends"
    weights = saved["model"]
    last = max(name for name in weights if re.fullmatch(r"decoder\.layers\.\d+\.final_layer_norm\.bias", name))
    norm = weights.get("decoder.layer_norm.bias", weights[last])
    norm += 1
    weights["decoder.output_projection.weight"][EOS] += 1
    torch.save(saved, checkpoint)
    expected = hypotheses(generate(parallel_data, checkpoint, beam=beam))
    assert all(expected.values()) and max(len(text.split()) for text in expected.values()) <= 2
    export([str(checkpoint), "--to", str(folder)])
    assert translations(folder, beam) == expected


def test_card(trained):
    _, folder = trained
    card = (folder / "README.md").read_text()
    assert 'subfolder="target"' in card
    assert re.search(r"\| validation BLEU \| [\d.]+ \|", card)


def test_there_and_back(parallel_data, trained, tmp_path):
    """The imported checkpoint has the same parameters to the bit; fairseq-generate takes it."""
    checkpoint, folder = trained
    import_transformers([str(folder), "--out", str(tmp_path / "back.pt")])
    assert_same_parameters(checkpoint, tmp_path / "back.pt")
    for language in ("de", "en"):
        own, back = (folder / f"dict.{language}.txt" for folder in (parallel_data, tmp_path))
        assert back.read_text().split()[::2] == own.read_text().split()[::2]
    assert hypotheses(generate(parallel_data, tmp_path / "back.pt")) == hypotheses(generate(parallel_data, checkpoint))
    # And again, from the dictionaries beside it.
    export([str(tmp_path / "back.pt"), "--to", str(tmp_path / "again")])
    again = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "again").state_dict()
    first = AutoModelForSeq2SeqLM.from_pretrained(folder).state_dict()
    assert all(again[name].equal(first[name]) for name in first)
    generation = json.loads((folder / "generation_config.json").read_text())
    longest = json.loads((folder / "config.json").read_text())["max_target_positions"]
    fairseqs = {"num_beams": 5, "early_stopping": True, "min_new_tokens": 1, "max_length": min(201, longest)}
    assert {name: generation[name] for name in fairseqs} == fairseqs
    for name in ("config.json", "generation_config.json"):
        assert json.loads((tmp_path / "again" / name).read_text()) == json.loads((folder / name).read_text())


def test_shared_dictionary(tmp_path):
    """One tokenizer serves both languages."""
    joined = preprocess(tmp_path / "joined", joined_dictionary=True)
    train(joined, tmp_path, max_update=2, share_all_embeddings=True, disable_validation=True, decoder_embed_dim=32)
    export([str(tmp_path / "checkpoint_last.pt"), "--to", str(tmp_path / "model"), "--dict", str(joined)])
    assert not (tmp_path / "model/target").exists()
    model = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "model")
    assert model.encoder.embed_tokens.weight is model.decoder.output_projection.weight
    (tmp_path / "back").mkdir()
    import_transformers([str(tmp_path / "model"), "--out", str(tmp_path / "back/model.pt")])
    assert_same_parameters(tmp_path / "checkpoint_last.pt", tmp_path / "back/model.pt")


@pytest.mark.parametrize(
    "words, message",
    [
        ({}, "dict.de.txt is missing; give the folder of its training data, with dict.de.txt"),
        ({"de": 5, "en": 7}, r"has \d+ symbols, .*dict.de.txt 9; give the dictionary of its training"),
    ],
)
def test_checkpoints_without_their_dictionaries_are_not_exported(trained, tmp_path, capsys, words, message):
    for language, number in words.items():
        dictionary(number).save(str(tmp_path / f"dict.{language}.txt"))
    line = one_line(capsys, export, trained[0], "--to", tmp_path / "model", "--dict", tmp_path)
    assert re.search(message, line), line
    assert not (tmp_path / "model").exists()


def test_checkpoints_of_unknown_languages_are_not_exported(trained, tmp_path, capsys):
    saved = torch.load(trained[0], weights_only=False)
    saved["cfg"]["task"] = argparse.Namespace(data="/nowhere")
    torch.save(saved, tmp_path / "changed.pt")
    line = one_line(capsys, export, tmp_path / "changed.pt", "--to", tmp_path / "model")
    assert "does not say its languages, nor does its data folder /nowhere; give --source-lang" in line
    assert not (tmp_path / "model").exists()


@pytest.mark.parametrize(
    "file, change, message",
    [
        ("tokenizer.json", None, "model: has no tokenizer.json; give the folder of a model"),
        ("config.json", "{", "config.json: cannot be read ("),
        ("config.json", dict(model_type="marian"), "config.json: marian is not a model of this package"),
        ("config.json", dict(vocab_size="many"), "its tokenizer has 40 symbols, its model many"),
        ("config.json", dict(target_lang=None), "give both languages names there"),
        ("config.json", dict(target_lang="/../../en"), "give both languages names there"),  # of files to write
    ],
)
def test_damaged_models_are_not_imported(trained, tmp_path, capsys, file, change, message):
    folder = tmp_path / "model"
    shutil.copytree(trained[1], folder)
    if change is None:
        (folder / file).unlink()
    elif isinstance(change, str):
        (folder / file).write_text(change)
    else:
        (folder / file).write_text(json.dumps({**json.loads((folder / file).read_text()), **change}))
    (tmp_path / "out").mkdir()
    line = one_line(capsys, import_transformers, folder, "--out", tmp_path / "out/back.pt")
    assert message in line and line.count(str(folder)) == 1 and list((tmp_path / "out").iterdir()) == []


def test_dictionaries_of_other_models_stay(trained, tmp_path, capsys):
    (tmp_path / "dict.en.txt").write_text("other 1\n")
    line = one_line(capsys, import_transformers, trained[1], "--out", tmp_path / "back.pt")
    assert "dict.en.txt: is the dictionary of another model; give an --out in another folder" in line
    assert [path.name for path in tmp_path.iterdir()] == ["dict.en.txt"]


def test_padding_words_are_not_generated(tmp_path):
    """Of the symbols of a padded dictionary, half are no words, and an untrained model knows no difference."""
    data = preprocess(tmp_path, padding_factor=64)
    train(data, tmp_path, max_update=1, disable_validation=True)
    assert (data / "dict.en.txt").read_text().count("madeupword") > 20
    log = generate(data, tmp_path / "checkpoint_last.pt", beam=1, sampling=True, temperature=50, max_len_b=20)
    assert "madeupword" not in log and len(log.split()) > 300
    export([str(tmp_path / "checkpoint_last.pt"), "--to", str(tmp_path / "model")])
    model = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "model")
    target = AutoTokenizer.from_pretrained(tmp_path / "model", subfolder="target")
    free = dict(do_sample=True, top_k=0, temperature=50.0, num_beams=1, early_stopping=False, min_new_tokens=99)
    made = model.generate(torch.tensor([[5, 6, 2]] * 4), **free, max_new_tokens=99)
    assert not any("madeupword" in text for text in target.batch_decode(made))
