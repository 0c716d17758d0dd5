"""import-original: converted checkpoints compute the same log-probabilities as the papers' original programs (where
FB_FAIRSEQ_DATA is set), and what is refused."""

import re
import string

import pytest
import torch

from fb_fairseq.checksums import dictionary_checksums
from fb_fairseq.modules import StreamState
from fb_fairseq.papers.import_original.command import main
from fb_fairseq.papers.import_original.layers import share_projections
from fb_fairseq.streams.state import StateHandle, StateStore
from tests.cli.checkpoints import loss_in, parameters
from tests.cli.fairseq_commands import json_logs, run, train

SEQUENTIAL = "transformer_pre per_layer_pre per_layer_pre_span shared_pre shared_pre_span shared_post".split()
PLAIN = [f"adaptive-span.{name}" for name in ("plain", "adaptive_span", "all_attention")]
PLAIN += [f"transformer-sequential.{name}" for name in SEQUENTIAL]
ADAPTIVE = "adaptive-span.all_attention_adaptive_io"


def file(shared_data, name):
    return torch.load(shared_data / f"original-checkpoints/{name}.pt", weights_only=True)


def vocabulary(folder, symbols):
    (folder / "vocabulary").write_text("".join(f"{symbol}\n" for symbol in symbols))
    return folder / "vocabulary"


WORDS = [f"w{i}" for i in range(257)]


def convert(folder, checkpoint, symbols, *more):
    torch.save(checkpoint, folder / "original.pt")
    out = folder / "imported/model.pt"
    out.parent.mkdir(exist_ok=True)
    files = folder / "original.pt", "--dict", vocabulary(folder, symbols), "--out", out
    main([*map(str, files), "--span-ramp", "4", *more])
    return out


D, E, H, S, N = 12, 4, 3, 5, 4  # width, of a head, heads, span and persistent vectors


def made_up(symbols=257):
    """What adaptive-span saves of an all-attention network of two layers with adaptive spans."""

    def draw(*shape):
        return torch.randn(shape) / shape[-1] ** 0.5

    model = {"key_pe": draw(1, E, S), "in_emb.weight": draw(symbols, D)}
    model.update({"out_emb.weight": draw(symbols, D), "out_emb.bias": draw(symbols)})
    for l in range(2):
        own = f"layers.{l}."
        for name in ("query", "key", "val", "out"):
            model[f"{own}attn.proj_{name}.weight"] = draw(D, D)
        attention = f"{own}attn.attn."
        z = {"adaptive_span._mask.current_val": torch.rand(H, 1, 1), "adaptive_span._mask.mask_template": draw(S)}
        model.update({attention + name: value for name, value in z.items()})
        model.update({f"{attention}persistent_memory.{name}": value for name, value in z.items()})
        model[f"{attention}persistent_memory.key"] = draw(H, E, N)
        model[f"{attention}persistent_memory.val"] = draw(H, N, E)
        model[f"{own}norm1.weight"] = torch.rand(D)
        model[f"{own}norm1.bias"] = draw(D)
    return {"iter_no": 3, "model": {f"module.{name}": value for name, value in model.items()}}


def options(path):
    return torch.load(path, weights_only=True)["cfg"]["model"]


def load(path):
    from fairseq.checkpoint_utils import load_model_ensemble_and_task

    (model,), _, task = load_model_ensemble_and_task([str(path)], arg_overrides={"data": str(path.parent)})
    return model.eval(), task.source_dictionary


def log_probabilities(model, tokens, carried):
    """Given what the stream carries in: [K, S, B, D]."""
    store = StateStore()
    store.write(0, 12, StreamState(carried))
    with torch.no_grad():
        output = model(tokens, stream=StateHandle(store, (0,), 12))
        return model.get_normalized_probs(output, log_probs=True)


def carried_memory(content, name):
    feedback = "layer_pre" in name or "shared" in name  # [S, B, D], the others [B, S, D]
    return torch.stack([h if feedback else h.transpose(0, 1) for h in content["carried_hidden"]])


@pytest.mark.parametrize("name", PLAIN)
@pytest.mark.parametrize("eos", [None, 7])
def test_log_probabilities(shared_data, tmp_path, name, eos):
    """Symbols that the original does not know have no probability; ``<eos>`` is fairseq's ``</s>``."""
    content = file(shared_data, name)
    symbols = ["<eos>" if i == eos else word for i, word in enumerate(WORDS[:40])]
    model, dictionary = load(convert(tmp_path, content["checkpoint"], symbols))
    places = torch.tensor([dictionary.index("</s>" if symbol == "<eos>" else symbol) for symbol in symbols])
    assert len(dictionary) == 44 - (eos is not None)
    ours = log_probabilities(model, places[content["tokens"]], carried_memory(content, name))
    torch.testing.assert_close(ours[..., places], content["output"], atol=1e-5, rtol=1e-5)
    assert ours.exp().sum(-1).sub(1).abs().max() < 1e-5
    shared = "shared" in name
    assert shared == hasattr(getattr(model.decoder, "memory", None), "k_proj")


def test_a_model_with_fairseqs_numbers(shared_data, tmp_path):
    """The dictionary has four symbols fewer than the model: fairseq's special ones come first."""
    content = file(shared_data, PLAIN[0])
    model, _ = load(convert(tmp_path, content["checkpoint"], WORDS[:36]))
    ours = log_probabilities(model, content["tokens"], carried_memory(content, PLAIN[0]))
    torch.testing.assert_close(ours, content["output"], atol=1e-5, rtol=1e-5)


def target_losses(model, content):
    """Negative log-likelihoods of the targets [B, M], from all symbols' log-probabilities; these are complete."""
    log_probs = log_probabilities(model, content["tokens"], carried_memory(content, ADAPTIVE))
    assert log_probs.exp().sum(-1).sub(1).abs().max() < 1e-5
    return -log_probs.gather(-1, content["targets"][..., None])[..., 0]


def test_adaptive_input_and_softmax(shared_data, tmp_path):
    content = file(shared_data, ADAPTIVE)
    path = convert(tmp_path, content["checkpoint"], WORDS[:36])
    model, _ = load(path)
    assert options(path)["adaptive_softmax_bias"]
    torch.testing.assert_close(target_losses(model, content), content["output"], atol=1e-5, rtol=1e-5)


def test_adaptive_softmax_of_a_vocabulary_without_special_symbols(shared_data, tmp_path, refused):
    """They join the shortlist, and their biases rule them out."""
    content = file(shared_data, ADAPTIVE)
    path = convert(tmp_path, content["checkpoint"], ["<eos>", *WORDS[:39]])
    model, dictionary = load(path)
    assert options(path)["adaptive_softmax_cutoff"] == "13,27"
    places = torch.tensor([*map(dictionary.index, ["</s>", *WORDS[:39]])])
    moved = {**content, "tokens": places[content["tokens"]], "targets": places[content["targets"]]}
    torch.testing.assert_close(target_losses(model, moved), content["output"], atol=1e-5, rtol=1e-5)
    log_probs = log_probabilities(model, moved["tokens"], carried_memory(content, ADAPTIVE))
    assert log_probs[..., [dictionary.bos(), dictionary.pad(), dictionary.unk()]].max() < -1000
    line = refused(convert, tmp_path, content["checkpoint"], [*WORDS[:39], "<eos>"])
    assert "would change the clusters of the adaptive softmax" in line


def made_up_clusters(*sizes):
    """``made_up`` with adaptive embeddings and an adaptive softmax, whose clusters have these sizes."""
    checkpoint = without("in_emb", "out_emb")(made_up())
    clusters = {}
    for i, size in enumerate(sizes):
        width = D // 2**i
        clusters[f"in_emb.emb_layers.{i}.weight"] = torch.randn(size, width)
        clusters[f"in_emb.emb_projs.{i}"] = torch.randn(D, width)
        clusters[f"out_emb.out_layers.{i}.weight"] = torch.randn(size, width)
        clusters[f"out_emb.out_layers.{i}.bias"] = torch.randn(size)
        clusters[f"out_emb.out_projs.{i}"] = torch.randn(D, width)
    clusters["out_emb.cluster_proj.weight"] = torch.randn(len(sizes) - 1, D)
    clusters["out_emb.cluster_proj.bias"] = torch.randn(len(sizes) - 1)
    checkpoint["model"].update({f"module.{name}": value for name, value in clusters.items()})
    return checkpoint, clusters


@pytest.mark.parametrize("sizes", [(20, 10), (12, 10, 8)])
def test_adaptive_softmax_by_hand(tmp_path, sizes):
    """A word of the shortlist, or a cluster, the last of which comes first, and then a word of it."""
    checkpoint, given = made_up_clusters(*sizes)
    path = convert(tmp_path, checkpoint, WORDS[:26])  # and fairseq's four special ones
    model, _ = load(path)
    tokens = torch.randint(4, 30, (2, 6))
    features = model.extract_features(tokens)[0]

    def logits(i):
        hidden = features @ given[f"out_emb.out_projs.{i}"]
        return hidden @ given[f"out_emb.out_layers.{i}.weight"].t() + given[f"out_emb.out_layers.{i}.bias"]

    projected = features @ given["out_emb.out_projs.0"]
    clusters = projected @ given["out_emb.cluster_proj.weight"].t() + given["out_emb.cluster_proj.bias"]
    head = torch.cat([logits(0), clusters], -1).log_softmax(-1)
    parts = [head[..., : sizes[0]]]
    parts += [head[..., -i, None] + logits(i).log_softmax(-1) for i in range(1, len(sizes))]
    found = model.get_normalized_probs(model(tokens), log_probs=True)
    torch.testing.assert_close(found, torch.cat(parts, -1), atol=1e-5, rtol=1e-5)
    tables = [given[f"in_emb.emb_layers.{i}.weight"] for i in range(len(sizes))]
    embedded = torch.cat([table @ given[f"in_emb.emb_projs.{i}"].t() for i, table in enumerate(tables)])
    torch.testing.assert_close(model.decoder.embed_tokens(tokens), embedded[tokens])


@pytest.mark.parametrize("last,shared", [(1.0, True), (2.0, False)])
def test_projections_that_are_the_same_in_all_layers(last, shared):
    names = [f"self_attn.{name}.{end}" for name in ("k_proj", "v_proj") for end in ("weight", "bias")]
    parameters = {f"decoder.layers.{l}.{name}": torch.tensor(1.0) for name in names for l in range(3)}
    parameters["decoder.layers.2.self_attn.v_proj.bias"] = torch.tensor(last)
    assert share_projections(parameters, {"decoder_layers": 3, "decoder_normalize_before": False}) == shared
    assert ("decoder.memory.k_proj.weight" in parameters) == shared


BYTES = ["<eos>"] + [str(b) for b in range(256) if b != 10]  # as prep_enwik8.py writes them: numbers, and lines


@pytest.mark.not_fast
def test_it_is_evaluated_continued_and_fine_tuned(byte_data, tmp_path):
    """By fairseq's commands, on data of preprocess_bytes."""
    path = convert(tmp_path, made_up(symbols=256), BYTES, "--bytes")
    symbols = [(folder / "dict.txt").read_text().split()[::2] for folder in (tmp_path / "imported", byte_data)]
    assert symbols[0] == symbols[1]
    model, dictionary = load(path)
    known = torch.load(path, weights_only=True)["extra_state"]["dictionaries"]
    assert known == dictionary_checksums(dict.fromkeys(("source", "target"), dictionary))
    newline = dictionary.index("<0x0A>")
    assert model.decoder.output_projection.bias[newline] > -100 > model.decoder.output_projection.bias[dictionary.eos()]
    common = byte_data, "--task", "streaming_lm", "--path", path, "--cpu"
    assert loss_in(run("eval-lm", *common, "--gen-subset", "valid", "--tokens-per-sample", 7)) > 5
    (tmp_path / "prompts").write_text("mi\n")
    out = run("interactive", *common, "--input", tmp_path / "prompts", "--max-len-b", 10, "--beam", 1)
    assert re.search(r"^D-0\t", out, re.M)
    sizes = dict(decoder_layers=2, decoder_embed_dim=12, decoder_attention_heads=3, decoder_head_dim=4)
    spans = dict(persistent_memory_size=4, attention_span=5, adaptive_span=True, adaptive_span_ramp=4)
    model_options = dict(arch="all_attention_lm", decoder_normalize_before=False, **sizes, **spans)
    train(byte_data, tmp_path / "still", finetune_from_model=path, lr=1e-30, max_update=1, **model_options)
    start = parameters(path)
    after = parameters(tmp_path / "still/checkpoint_last.pt")
    torch.testing.assert_close(dict(start), dict(after), atol=1e-25, rtol=0)
    log = train(byte_data, tmp_path / "tuned", finetune_from_model=path, max_update=40, **model_options)
    losses = [float(entry["loss"]) for entry in json_logs(log, "train_inner")]
    assert losses[-1] < losses[0] - 1


def test_bytes_as_characters(tmp_path):
    """As prep_text8.py writes them: letters, and _ for a blank."""
    letters = ["e", "_", "<eos>", *"abcdfghijklmnopqrstuvwxyz"]
    model, dictionary = load(convert(tmp_path, made_up(symbols=28), letters, "--bytes"))
    known = model.decoder.output_projection.bias > -100
    assert {dictionary[i] for i in known.nonzero()} == {"<0x20>", "<0x0A>", *string.ascii_lowercase}


def test_a_named_ramp_is_in_the_checkpoint(tmp_path, capsys):
    path = convert(tmp_path, made_up(), WORDS)
    assert options(path)["adaptive_span_ramp"] == 4
    said = capsys.readouterr().out
    for part in ("parameters, all_attention_lm", "ramp of adaptive spans; 4 is taken"):
        assert part in said


def without(*patterns):
    def change(checkpoint):
        for name in list(checkpoint["model"]):
            if any(re.search(pattern, name) for pattern in patterns):
                del checkpoint["model"][name]
        return checkpoint

    return change


def with_more(checkpoint):
    checkpoint["model"]["module.layers.0.gate.weight"] = torch.zeros(2)
    return checkpoint


@pytest.mark.parametrize(
    "change,message",
    [
        (without("layers.1.attn.proj_val"), "layers.1.attn.proj_val.weight is missing"),
        (without("key_pe"), "has neither key_pe nor layers.0.attn.attn.key_pe"),
        (without(r"layers\."), "layers.0 is missing"),
        (lambda _: made_up_clusters(257)[0], "its adaptive embeddings have one cluster; import takes two or more"),
        (with_more, "layers.0.gate.weight: unknown parameters, which cannot be imported"),
        (lambda checkpoint: {"weights": 3}, "does not contain a model"),
    ],
)
def test_foreign_checkpoints(tmp_path, refused, change, message):
    line = refused(convert, tmp_path, change(made_up()), WORDS)
    assert message in line and "original.pt" in line
    assert not list((tmp_path / "imported").iterdir()), "nothing half-written"


@pytest.mark.parametrize(
    "symbols,more,message",
    [
        (["a", "b"], [], "has 2 symbols, the checkpoint 257"),
        (["a"] * 257, [], "contains 'a' more than once"),
        (WORDS, ["--bytes"], "'w0' is not a byte"),
        (
            ["<eos>", "</s>", *WORDS[2:]],
            [],
            "<eos>, </s> are one symbol of fairseq, </s>; give one of them another name",
        ),
        (["<eos>", *range(256)], ["--bytes"], "<eos>, 10 are one symbol of fairseq, <0x0A>; give one of them another"),
        (["²", *WORDS[1:]], ["--bytes"], "'²' is not a byte"),
    ],
)
def test_bad_input(tmp_path, refused, symbols, more, message):
    assert message in refused(convert, tmp_path, made_up(), symbols, *more)
    assert not list((tmp_path / "imported").iterdir())
