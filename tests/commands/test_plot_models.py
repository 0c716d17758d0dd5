"""Panels for which models are run: their numbers against computations by hand, and how they are drawn."""

import argparse
import math

import numpy as np
import pytest
import torch

from fb_fairseq.commands import texts
from fb_fairseq.commands.label_accuracy import PositionCounts
from fb_fairseq.commands.plot import context, measures, panels, persistent
from fb_fairseq.commands.preprocess_bytes import byte_dictionary
from fb_fairseq.criterions import LanguageModelLoss
from fb_fairseq.errors import UserError
from fb_fairseq.models.language_models import StreamingLSTMLanguageModel, StreamingLSTMLMConfig
from fb_fairseq.pretrained.vocabulary import Vocabulary
from fb_fairseq.streams.fairseq.corpus import Corpus
from tests.models.language_models import (
    MODELS,
    AllAttentionLM,
    FeedbackLM,
    RelativeLM,
    both,
    dictionary,
    plain,
)

pyplot = pytest.importorskip("matplotlib.pyplot")

SPAN = 5  # of the models that are built
ADAPTIVE = dict(adaptive_softmax_cutoff="10,16", adaptive_softmax_factor=2, adaptive_softmax_bias=True)


class Lines(list):
    """Stands for fairseq's indexed dataset."""

    @property
    def sizes(self):
        return np.array([len(line) for line in self])


def corpus_of(length, seed=0):
    """A corpus of so many random tokens, in lines of seven."""
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(4, 24, (length,), generator=generator)
    return Corpus(Lines(tokens.split(7)), eos=2)


def load_both(model, **changes):
    """A model in double precision as commands read it; and fairseq's."""
    loaded, built = both(model, **changes)
    loaded.source = "--option a.pt"
    return loaded.double(), built.double()


def load(model, **changes):
    """A model in double precision as commands read it."""
    return load_both(model, **changes)[0]


def lstm():
    """A streaming LSTM of one layer, as commands read it."""
    words = dictionary()
    task = argparse.Namespace(source_dictionary=words, target_dictionary=words)
    cfg = StreamingLSTMLMConfig(decoder_layers=1, decoder_embed_dim=8)
    loaded = plain(StreamingLSTMLanguageModel.build_model(cfg, task), cfg, "streaming_lstm_lm").double()
    loaded.source = "--option a.pt"
    return loaded


def test_streams_overlap():
    """Each reads the context before its own tokens; together they count every token after the first context once."""
    corpus = corpus_of(200)
    tokens_BT, first = measures.cut_text(corpus, 100, 10)
    assert first == 10 and tokens_BT.shape == (16, 16)
    torch.testing.assert_close(tokens_BT[:, 10:].flatten(), corpus[10:106])
    torch.testing.assert_close(tokens_BT[1], corpus[6:22])
    assert measures.cut_text(corpus_of(9), 100, 10)[0].shape == (5, 5), "a short text: half of it is context"
    assert measures.cut_text(corpus_of(1), 100, 10)[0].shape == (1, 1)


@pytest.mark.parametrize("model", MODELS)
def test_mean_attention(model):
    """Rows sum up to one. Where what is read does not depend on steps before the span, it is the mean over the steps of
    one long stream, once its memory is full: of one layer, without feedback."""
    loaded = load(model, attention_span=SPAN, decoder_layers=1)
    corpus = corpus_of(60)
    found = measures.mean_attention(loaded, *measures.cut_text(corpus, 48, SPAN))
    with torch.no_grad():
        x_TBD = loaded.embed(corpus[0 : SPAN + 48][None], 0).transpose(0, 1)
        weights_LBHTS, _ = loaded.stack.memory_attention(x_TBD)
    rows = torch.tensor(found.rows).double() / 100
    has_persistent = model is AllAttentionLM
    if model is not FeedbackLM:
        expected = weights_LBHTS[:, 0, :, SPAN:].mean((1, 2))
        torch.testing.assert_close(rows[:, has_persistent:], expected)
    if has_persistent:
        shares = persistent.persistent_shares(loaded, *measures.cut_text(corpus, 48, SPAN))
        torch.testing.assert_close(100 * rows[:, 0], torch.tensor(shares.rows).double().mean(1))
    distances = [str(d) for d in range(1, SPAN + 1)]
    assert found.columns == (["persistent", *distances] if has_persistent else distances)
    torch.testing.assert_close(rows.sum(1), torch.ones_like(rows[:, 0]))


def test_attention_in_ranges(monkeypatch):
    """Of longer spans, each column is the sum of twice as many distances as the one before."""
    loaded = load(RelativeLM, attention_span=SPAN)
    streams = measures.cut_text(corpus_of(60), 48, SPAN)
    each = torch.tensor(measures.mean_attention(loaded, *streams).rows)
    monkeypatch.setattr(measures, "SINGLE_DISTANCES", 4)
    found = measures.mean_attention(loaded, *streams)
    assert found.columns == ["1", "2", "3–4", "5"]
    torch.testing.assert_close(torch.tensor(found.rows)[:, 2], each[:, 2:4].sum(1))


@pytest.mark.parametrize("positions", ["key", "none"])
@pytest.mark.parametrize("model", MODELS)
def test_attention_map(model, positions):
    loaded, tokens = load(model, attention_span=SPAN, relative_positions=positions), [2, *range(4, 12)]
    found = measures.attention_map(loaded, tokens, 2)
    rows = torch.tensor(found.rows)
    assert rows.shape == (8, 8) and found.what == "layer 2, mean of all heads"
    with torch.no_grad():
        x_TBD = loaded.embed(torch.tensor([tokens]), 0).transpose(0, 1)
        weights_TS = loaded.stack.memory_attention(x_TBD)[0][1, 0].mean(0)
    for query in range(1, 9):
        for key in range(8):
            distance = query - key
            value = rows[query - 1, key]
            if distance < 1:
                assert value.isnan()
            else:
                expected = weights_TS[query, distance - 1] if distance <= SPAN else torch.tensor(0.0)
                torch.testing.assert_close(value, expected.float())
    of_layers = torch.tensor([measures.attention_map(loaded, tokens, layer).rows for layer in (1, 2)])
    mean = torch.tensor(measures.attention_map(loaded, tokens, None).rows)
    torch.testing.assert_close(mean, of_layers.mean(0), equal_nan=True)
    with pytest.raises(UserError, match="--layer 3: --option a.pt has layers 1 to 2; give one of these"):
        measures.attention_map(loaded, tokens, 3)
    with pytest.raises(UserError, match="--attention-map: 101 tokens are too many for a map; give 100 or fewer"):
        measures.attention_map(loaded, [4] * 102, None)


def test_persistent_use():
    loaded = load(AllAttentionLM)
    streams = measures.cut_text(corpus_of(40), 30, SPAN)
    found = persistent.persistent_use(loaded, *streams)
    use_LUN = measures.mean_over_steps(loaded, *streams, loaded.stack.persistent_use)
    for layer, use_UN in zip(found, use_LUN):
        for n in range(1, 8):
            shares = [sum(sorted(use_N.tolist())[-n:]) / sum(use_N.tolist()) for use_N in use_UN]
            assert layer[n - 1] == pytest.approx(sum(shares) / len(shares))
    assert len(layer) == 7 and layer[-1] == pytest.approx(1)


@pytest.mark.parametrize("changes", [{}, ADAPTIVE], ids=["plain", "adaptive"])
@pytest.mark.parametrize("model", MODELS)
def test_losses_by_context(model, changes):
    """Token by token: every token is predicted with each range of contexts, from an empty memory."""
    loaded, built = load_both(model, **changes)
    corpus = corpus_of(40)
    longest = 8
    found = context.losses_by_context(loaded, corpus, 22, longest)
    assert found.bins == [(1, 1), (2, 2), (3, 4), (5, 8)] and found.unit == "token"
    for (fewest, most), perplexity in zip(found.bins, found.values):
        losses = []
        for i in range(20):  # half of the longest context divides it
            target = longest + i
            start = target - (fewest + i % (most - fewest + 1))
            with torch.no_grad():
                net_output = built(corpus[start:target][None])
                log_probs = built.get_normalized_probs(net_output, log_probs=True)
            losses.append(-log_probs[0, -1, int(corpus[target : target + 1])].item())
        assert perplexity == pytest.approx(math.exp(sum(losses) / 20), rel=1e-5)


@pytest.mark.parametrize("changes", [{}, ADAPTIVE], ids=["plain", "adaptive"])
def test_whole_text_is_evaluation(changes):
    """With every target counted, it is the loss of the criterion; blocks and parts change nothing."""
    loaded, built = load_both(RelativeLM, **changes)
    tokens = corpus_of(150)[-1:150]
    criterion = LanguageModelLoss(argparse.Namespace(target_dictionary=dictionary()))
    inputs = tokens[None, :-1]
    targets = tokens[None, 1:]
    sample = {"net_input": {"src_tokens": inputs}, "target": targets, "ntokens": targets.numel()}
    with torch.no_grad():
        loss, _, _ = criterion.eval()(built, sample)
    assert context.segment_loss(loaded, tokens[None], 1) == pytest.approx(loss.item(), rel=1e-6)
    last = context.segment_loss(loaded, tokens[None], 150)
    parts = [context.segment_loss(loaded, tokens[None], fewest) for fewest in (65, 66)]
    one = built(inputs)
    log_probs = built.get_normalized_probs(one, log_probs=True)[0]
    assert last == pytest.approx(-log_probs[149, targets[0, 149]].item(), rel=1e-5)
    assert parts[0] - parts[1] == pytest.approx(-log_probs[64, targets[0, 64]].item(), rel=1e-4)


def test_other_models_are_refused():
    streams = torch.full((1, 4), 5), 1
    no_vectors = "--option a.pt: has no persistent vectors; give a checkpoint of all_attention_lm"
    with pytest.raises(UserError, match="--option a.pt: attends to nothing"):
        measures.mean_attention(lstm(), *streams)
    for measure in (persistent.persistent_shares, persistent.persistent_use):
        with pytest.raises(UserError, match=no_vectors):
            measure(lstm(), *streams)
    with pytest.raises(UserError, match="has no persistent vectors"):
        persistent.persistent_use(load(FeedbackLM), *streams)
    assert len(context.losses_by_context(lstm(), corpus_of(40), 16, 4).values) == 3, "context helps an LSTM too"
    assert len(context.losses_by_context(lstm(), corpus_of(2), 16, 4).values) == 1
    with pytest.raises(UserError, match="--option a.pt: needs two tokens or more to read; give another --split"):
        context.losses_by_context(lstm(), corpus_of(1), 16, 4)


def test_tokens_of_a_text(tmp_path):
    loaded = argparse.Namespace(vocabulary=Vocabulary(byte_dictionary().symbols))
    tokens = texts.text_of(loaded, "a $\\n\\xff<", None)
    assert loaded.vocabulary.labels(tokens) == ["</s>", "a", "\u2423", "$", "\u21b5", r"\xFF", "<"]
    for wrong, message in (("", "--prompt: is empty"), (r"\q", r"--prompt: unknown escape \\q")):
        with pytest.raises(UserError, match=message):
            texts.text_of(loaded, wrong, None)
    (tmp_path / "text").write_bytes(b"a\\\r\n\xff")
    tokens = texts.text_of(loaded, None, str(tmp_path / "text"))
    assert tokens[1:] == [4 + byte for byte in b"a\\\r\n\xff"], "without translation of its line ends or escapes"


def test_shares_are_drawn():
    """With their numbers, and as few of them as can be read."""
    _, axes = pyplot.subplots()
    panels.draw_shares(axes, measures.Shares([[25.0] * 4, [40.0, 30.0, 20.0, 10.0]], ["1", "2", "3–4", "5"], "steps"))
    assert [label.get_text() for label in axes.get_xticklabels()] == ["1", "2", "3–4", "5"]
    assert [text.get_text() for text in axes.texts] == ["25"] * 4 + ["40", "30", "20", "10"]
    _, axes = pyplot.subplots()
    panels.draw_shares(axes, measures.Shares([[1.0] * 99] * 2, ["1"] * 99, "steps"))
    assert not axes.texts and axes.get_ylabel() == "layer"


def test_map_is_drawn():
    _, axes = pyplot.subplots()
    nan = math.nan
    found = measures.AttentionMap([[1.0, nan], [0.5, 0.5]], ["</s>", "x", "$y$"], "layer 1")
    panels.draw_attention_map(axes, found)
    assert [label.get_text() for label in axes.get_xticklabels()] == ["</s>", "x"]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["x", r"\$y\$"]
    assert axes.get_title() == "layer 1" and axes.images[0].norm(0.25) == 0.5
    width = 101 * panels.TOKEN_OF_MAP + 1
    assert panels.map_size(found._replace(labels=["x"] * 101)) == (width + 1, width)


def test_lines_are_drawn():
    _, axes = pyplot.subplots()
    panels.draw_layer_weights_over_training(axes, [[(1, 0.25), (2, 0.5)], [(1, 0.75), (2, 0.5)]])
    assert axes.get_lines()[2].get_ydata() == [0.5, 0.5] and axes.get_ylim()[0] == 0, "equal shares, and none"
    assert axes.get_legend_handles_labels()[1][:2] == ["embedding", "layer 1"]
    _, axes = pyplot.subplots()
    panels.draw_persistent_use(axes, [[0.4, 0.7, 0.95, 1.0], [0.9, 0.92, 0.98, 1.0]])
    assert axes.get_legend_handles_labels()[1] == ["layer 1", "layer 2", "all used equally"]
    assert axes.get_lines()[1].get_ydata().tolist() == pytest.approx([90, 92, 98, 100])
    for unit, label in (("token", "perplexity"), ("byte", "bits per byte")):
        _, axes = pyplot.subplots()
        losses = context.ContextLosses([(1, 1), (2, 2), (3, 4)], [8.0, 4.0, 2.0], unit)
        panels.draw_context_losses(axes, {"a": losses})
        assert axes.get_ylabel() == label and axes.get_lines()[0].get_ydata().tolist() == losses.values
        table = panels.context_table({"a": losses, "b": losses._replace(values=[1.0, 1.5, 1.25])})
        assert table[0] == "| context | a | b |" and table[2] == "| 1 | 8.000 | 1.000 |"
        assert table[-1] == "| 3 to 4 | 2.000 | 1.250 |"
    _, axes = pyplot.subplots()
    panels.draw_position_accuracy(axes, {"a": PositionCounts([0, 4, 0, 4], [0, 1, 0, 4])})
    line = axes.get_lines()[0]
    assert line.get_xdata().tolist() == [1, 3] and line.get_ydata().tolist() == [25, 100]
    assert line.get_label() == "a (62.5% of all labels)"
    many = PositionCounts([0] + [2] * 250, [0] + [1] * 250)
    _, axes = pyplot.subplots()
    panels.draw_position_accuracy(axes, {"": many})
    line = axes.get_lines()[0]
    assert len(line.get_xdata()) == 100 and set(line.get_ydata()) == {50} and line.get_xdata()[0] == 2
