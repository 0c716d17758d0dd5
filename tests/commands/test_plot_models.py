"""Panels for which models are run: their numbers against computations by hand, and how they are drawn."""

import argparse
import math

import numpy as np
import pytest
import torch
from fairseq.data import Dictionary

from fb_fairseq.commands.plot import measures, models, panels
from fb_fairseq.commands.plot.measures import PositionCounts, doubling_bins
from fb_fairseq.commands.plot.panels import Named
from fb_fairseq.commands.preprocess_bytes import byte_dictionary
from fb_fairseq.criterions import LanguageModelLoss
from fb_fairseq.errors import UserError
from fb_fairseq.models.architectures import StreamingLSTMLanguageModel, StreamingLSTMLMConfig
from fb_fairseq.streams.fairseq.corpus import Corpus
from tests.models.language_models import MODELS, AllAttentionLM, FeedbackLM, RelativeLM, build, dictionary
from tests.modules.options import randomise

pyplot = pytest.importorskip("matplotlib.pyplot")

SPAN = 5  # of the models that are built
ADAPTIVE = dict(adaptive_softmax_cutoff="10,16", adaptive_softmax_bias=True)


class Lines(list):
    """Stands for fairseq's indexed dataset."""

    @property
    def sizes(self):
        return np.array([len(line) for line in self])


def text(length, seed=0):
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(4, 24, (length,), generator=generator)
    return Corpus(Lines(tokens.split(7)), eos=2)


def load(model, **changes):
    torch.manual_seed(1)
    built = build(model, **changes).double().eval()
    randomise(built)
    words = dictionary()
    args = argparse.Namespace(labels=False)
    task = argparse.Namespace(source_dictionary=words, target_dictionary=words, args=args, byte_data=False)
    return models.LoadedModel("--option a.pt", built, task, torch.device("cpu"))


def lstm():
    words = dictionary()
    task = argparse.Namespace(source_dictionary=words, target_dictionary=words, args=argparse.Namespace(labels=False))
    built = StreamingLSTMLanguageModel.build_model(StreamingLSTMLMConfig(decoder_layers=1, decoder_embed_dim=8), task)
    return models.LoadedModel("--option a.pt", built.double().eval(), task, torch.device("cpu"))


def test_streams_overlap():
    """Each reads the context before its own tokens; together they count every token after the first context once."""
    corpus = text(200)
    tokens_BT, first = measures.cut_text(corpus, 100, 10)
    assert first == 10 and tokens_BT.shape == (16, 16)
    torch.testing.assert_close(tokens_BT[:, 10:].flatten(), corpus[10:106])
    torch.testing.assert_close(tokens_BT[1], corpus[6:22])
    assert measures.cut_text(text(9), 100, 10)[0].shape == (5, 5), "a short text: half of it is context"
    assert measures.cut_text(text(1), 100, 10)[0].shape == (1, 1)


@pytest.mark.parametrize("model", MODELS)
def test_mean_attention(model):
    """Over streams and blocks it is the mean over the steps of one long stream, once its memory is full."""
    loaded, corpus = load(model, attention_span=SPAN, decoder_layers=1), text(60)
    found = measures.mean_attention(loaded, *measures.cut_text(corpus, 48, SPAN))
    with torch.no_grad():
        x_TBD = loaded.model.decoder.embed(corpus[0 : SPAN + 48][None], 0).transpose(0, 1)
        weights_LBHTS, _ = loaded.stack.memory_attention(x_TBD)
    # One layer: what it reads depends on the steps that it reaches only, not on where a stream begins.
    if model is not FeedbackLM:
        expected = weights_LBHTS[:, 0, :, SPAN:].mean((1, 2))
        torch.testing.assert_close(torch.tensor(found.layers).double(), expected)
    sums = torch.tensor(found.layers).sum(1)
    if model is AllAttentionLM:
        shares = measures.persistent_shares(loaded, *measures.cut_text(corpus, 48, SPAN))
        torch.testing.assert_close(torch.tensor(found.persistent), torch.tensor(shares).mean(1))
        assert (sums < 0.999).all()
    else:
        assert found.persistent is None
        torch.testing.assert_close(sums, torch.ones_like(sums))


@pytest.mark.parametrize("model", MODELS)
def test_attention_map(model):
    loaded, tokens = load(model, attention_span=SPAN), [2, *range(4, 12)]
    found = measures.attention_map(loaded, tokens, 2)
    rows = torch.tensor(found.rows)
    assert rows.shape == (8, 8) and found.what == "layer 2"
    with torch.no_grad():
        x_TBD = loaded.model.decoder.embed(torch.tensor([tokens]), 0).transpose(0, 1)
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
    both = torch.tensor([measures.attention_map(loaded, tokens, layer).rows for layer in (1, 2)])
    mean = torch.tensor(measures.attention_map(loaded, tokens, None).rows)
    torch.testing.assert_close(mean, both.mean(0), equal_nan=True)
    with pytest.raises(UserError, match="--layer 3: --option a.pt has layers 1 to 2; give one of these"):
        measures.attention_map(loaded, tokens, 3)
    with pytest.raises(UserError, match="--attention-map: 101 tokens are too many for a map; give 100 or fewer"):
        measures.attention_map(loaded, [4] * 102, None)


def test_persistent_use():
    loaded = load(AllAttentionLM)
    streams = measures.cut_text(text(40), 30, SPAN)
    found = measures.persistent_use(loaded, *streams)
    use_LUN = measures.mean_over_steps(loaded, *streams, loaded.stack.persistent_use)
    for layer, use_UN in zip(found, use_LUN):
        for n in range(1, 8):
            shares = [sum(sorted(use_N.tolist())[-n:]) / sum(use_N.tolist()) for use_N in use_UN]
            assert layer[n - 1] == pytest.approx(sum(shares) / len(shares))
    assert len(layer) == 7 and layer[-1] == pytest.approx(1)


def test_bins():
    assert doubling_bins(1) == [(1, 1)]
    assert doubling_bins(2) == [(1, 1), (2, 2)]
    assert doubling_bins(8) == [(1, 1), (2, 2), (3, 4), (5, 8)]
    assert doubling_bins(11) == [(1, 1), (2, 2), (3, 4), (5, 8), (9, 11)]


@pytest.mark.parametrize("changes", [{}, ADAPTIVE], ids=["plain", "adaptive"])
@pytest.mark.parametrize("model", MODELS)
def test_losses_by_context(model, changes):
    """Token by token: every token is predicted with each range of contexts, from an empty memory."""
    loaded, corpus, longest = load(model, **changes), text(40), 8
    found = measures.losses_by_context(loaded, corpus, 22, longest)
    assert found.bins == [(1, 1), (2, 2), (3, 4), (5, 8)] and not found.bytes
    for (fewest, most), nats in zip(found.bins, found.nats):
        losses = []
        for i in range(20):  # half of the longest context divides it
            target = longest + i
            start = target - (fewest + i % (most - fewest + 1))
            with torch.no_grad():
                net_output = loaded.model(corpus[start:target][None])
                log_probs = loaded.model.get_normalized_probs(net_output, log_probs=True)
            losses.append(-log_probs[0, -1, int(corpus[target : target + 1])].item())
        assert nats == pytest.approx(sum(losses) / 20, rel=1e-5)


@pytest.mark.parametrize("changes", [{}, ADAPTIVE], ids=["plain", "adaptive"])
def test_whole_text_is_evaluation(changes):
    """With every target counted, it is the loss of the criterion; blocks and parts change nothing."""
    loaded, tokens = load(RelativeLM, **changes), text(150)[-1:150]
    criterion = LanguageModelLoss(loaded.task)
    inputs, targets = tokens[None, :-1], tokens[None, 1:]
    sample = {"net_input": {"src_tokens": inputs}, "target": targets, "ntokens": targets.numel()}
    with torch.no_grad():
        loss, _, _ = criterion.eval()(loaded.model, sample)
    assert measures.segment_loss(loaded, tokens[None], 1) == pytest.approx(loss.item(), rel=1e-6)
    last = measures.segment_loss(loaded, tokens[None], 150)
    parts = [measures.segment_loss(loaded, tokens[None], fewest) for fewest in (65, 66)]
    one = loaded.model(inputs)
    log_probs = loaded.model.get_normalized_probs(one, log_probs=True)[0]
    assert last == pytest.approx(-log_probs[149, targets[0, 149]].item(), rel=1e-5)
    assert parts[0] - parts[1] == pytest.approx(-log_probs[64, targets[0, 64]].item(), rel=1e-4)


def test_longest_context():
    assert measures.longest_context(None, 10**6) == 1024
    assert measures.longest_context(None, 100) == 32 and measures.longest_context(32, 100) == 32
    assert measures.longest_context(None, 2) == 1
    for asked, length, message in (
        (48, 10**6, "--context 48: must be a power of two"),
        (0, 10**6, "--context 0: must be a power of two"),
        (64, 100, "--context 64: the split has only 100 tokens; give 32 or less"),
        (None, 1, "the split has only 1 tokens"),
    ):
        with pytest.raises(UserError, match=message):
            measures.longest_context(asked, length)


def test_other_models_are_refused():
    streams = torch.full((1, 4), 5), 1
    no_vectors = "--option a.pt: has no persistent vectors; give a checkpoint of all_attention_lm"
    with pytest.raises(UserError, match="--option a.pt: attends to nothing"):
        measures.mean_attention(lstm(), *streams)
    for measure in (measures.persistent_shares, measures.persistent_use):
        with pytest.raises(UserError, match=no_vectors):
            measure(lstm(), *streams)
    with pytest.raises(UserError, match="has no persistent vectors"):
        measures.persistent_use(load(FeedbackLM), *streams)
    assert len(measures.losses_by_context(lstm(), text(40), 16, 4).nats) == 3, "context helps an LSTM too"


def test_tokens_of_a_text(tmp_path):
    bytes_task = argparse.Namespace(source_dictionary=byte_dictionary(), args=None)
    loaded = models.LoadedModel("--attention a.pt", None, bytes_task, None)
    read = lambda text: models.text_of(argparse.Namespace(prompt=text, text=None), loaded)
    tokens = read("a $\\n\\xff</s>"[:10])
    assert tokens[0] == bytes_task.source_dictionary.eos()
    labels = models.token_labels(tokens, bytes_task.source_dictionary)
    assert labels == ["</s>", "a", "\u2423", r"\$", r"\n", r"\xFF", "<"]
    for wrong, message in (("", "--prompt: is empty"), (r"\q", r"--prompt: unknown escape \\q")):
        with pytest.raises(UserError, match=message):
            read(wrong)
    (tmp_path / "text").write_bytes(b"a\\\r\n\xff")
    tokens = models.text_of(argparse.Namespace(prompt=None, text=str(tmp_path / "text")), loaded)
    assert tokens[1:] == [4 + byte for byte in b"a\\\r\n\xff"], "without translation of its line ends or escapes"
    words = Dictionary()
    words.add_symbol("cat")
    loaded = loaded._replace(task=argparse.Namespace(source_dictionary=words, args=None))
    assert models.token_labels(read(" cat "), words) == ["</s>", "cat"]
    with pytest.raises(UserError, match="--prompt: 'dog' is not in the dictionary; tokenise the text like"):
        read("dog")


def cells(axes):
    """The numbers of a heat map, rows from the lowest layer."""
    return axes.images[0].get_array().tolist()


def test_attention_is_drawn_in_ranges():
    _, axes = pyplot.subplots()
    layers = [[1 / 20] * 20, [0.5] + [0.0] * 19]
    panels.draw_attention(axes, Named("a", measures.Attention(layers, [0.0, 0.5])))
    labels = [label.get_text() for label in axes.get_xticklabels()]
    assert labels == ["persistent", "1", "2", "3–4", "5–8", "9–16", "17–20"]
    assert cells(axes)[0] == pytest.approx([0, 5, 5, 10, 20, 40, 20]) and cells(axes)[1][:2] == [50, 50]
    _, axes = pyplot.subplots()
    panels.draw_attention(axes, Named("", measures.Attention([[0.25] * 4], None)))
    assert cells(axes) == [[25] * 4] and [text.get_text() for text in axes.texts] == ["25"] * 4


def test_map_is_drawn():
    _, axes = pyplot.subplots()
    nan = math.nan
    found = measures.AttentionMap([[1.0, nan], [0.5, 0.5]], [2, 4, 5], "layer 1")
    panels.draw_attention_map(axes, Named("a", found), ["</s>", "x", "y"])
    assert [label.get_text() for label in axes.get_xticklabels()] == ["</s>", "x"]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["x", "y"]
    assert axes.get_title() == "a, layer 1"


def test_lines_are_drawn():
    _, axes = pyplot.subplots()
    panels.draw_persistent_use(axes, Named("a", [[0.4, 0.7, 0.95, 1.0], [0.9, 0.92, 0.98, 1.0]]))
    labels = axes.get_legend_handles_labels()[1]
    assert labels == ["layer 1: half in 2, 90% in 3", "layer 2: half in 1, 90% in 1", "all used equally"]
    for is_bytes, label, expected in ((False, "perplexity", [8, 4]), (True, "bits per byte", [3, 2])):
        _, axes = pyplot.subplots()
        losses = measures.ContextLosses([(1, 1), (2, 2)], [math.log(8), math.log(4)], is_bytes)
        panels.draw_context_losses(axes, [Named("a", losses)])
        assert axes.get_ylabel() == label
        assert axes.get_lines()[0].get_ydata().tolist() == pytest.approx(expected)
        table = panels.context_table([Named("a", losses), Named("b", losses._replace(nats=[0, 0]))])
        assert table[0] == "| context | a | b |" and table[2].startswith(f"| 1 | {expected[0]:.3f} | ")
    wider = measures.ContextLosses([(1, 1), (2, 2), (3, 4)], [0, 0, math.log(5)], False)
    assert panels.context_table([Named("", wider)])[-1] == "| 3 to 4 | 5.000 |"
    _, axes = pyplot.subplots()
    panels.draw_position_accuracy(axes, [Named("a", PositionCounts([0, 4, 0, 4], [0, 1, 0, 4]))])
    line = axes.get_lines()[0]
    assert line.get_xdata().tolist() == [1, 3] and line.get_ydata().tolist() == [25, 100]
    assert line.get_label() == "a (62.5% of all labels)"
    many = PositionCounts([0] + [2] * 250, [0] + [1] * 250)
    _, axes = pyplot.subplots()
    panels.draw_position_accuracy(axes, [Named("", many)])
    line = axes.get_lines()[0]
    assert len(line.get_xdata()) == 84 and set(line.get_ydata()) == {50} and line.get_xdata()[0] == 2


def test_passes():
    """The first pass is wrong, and after as many passes as steps the memory is the step loop's."""
    loaded = load(FeedbackLM, memory_composition="weighted", adaptive_span=False)
    tokens_BT = text(40)[0:40].view(2, 20)
    found = measures.errors_by_pass(loaded, tokens_BT)
    assert found[0] > 1e-3 and found[-1] < 1e-6 and len(found) <= 20
    assert measures.errors_by_pass(loaded, tokens_BT[:, :1])[0] < 1e-12, "one step is exact at once"
    _, axes = pyplot.subplots()
    panels.draw_passes(axes, [Named("A", found), Named("B", found)])
    assert [line.get_label() for line in axes.lines] == ["A", "B"] and axes.get_yscale() == "log"
    np.testing.assert_array_equal(axes.lines[0].get_ydata(), found)
    assert panels.pass_values([Named("A", found)])[0].startswith(f"A: {found[0]:.2g}, ")
    with pytest.raises(UserError, match="has no feedback memory; give a checkpoint of feedback_transformer_lm"):
        measures.errors_by_pass(load(RelativeLM), tokens_BT)
