"""Adaptive embeddings and softmax: equal to fairseq's, exact, and in half precision."""

import pytest
import torch

from fb_fairseq.modules.adaptive_input import AdaptiveEmbedding
from fb_fairseq.modules.adaptive_losses import adaptive_guess, adaptive_losses
from fb_fairseq.modules.adaptive_softmax import AdaptiveSoftmax, Bias

PAD = 1
V, D, FACTOR, CUTOFFS = 41, 12, 2.5, [7, 18]
KINDS = {"untied": {}, "tied": dict(tied=True), "projections": dict(tied=True, tie_projections=True)}


def own(tied=False, tie_projections=False, dropout=0.0, bias=False):
    """An embedding and a softmax of this package, as ``embedding`` and ``softmax``."""
    embedding = AdaptiveEmbedding(V, PAD, D, FACTOR, CUTOFFS)
    ties = dict(tied=embedding if tied else None, tie_projections=tie_projections)
    softmax = AdaptiveSoftmax(V, D, CUTOFFS, factor=FACTOR, dropout=dropout, bias=bias, **ties)
    return torch.nn.ModuleDict(dict(embedding=embedding, softmax=softmax))


def fairseqs(tied=False, tie_projections=False, dropout=0.0):
    """The same of fairseq."""
    modules = pytest.importorskip("fairseq.modules")
    embedding = modules.AdaptiveInput(V, PAD, D, FACTOR, D, CUTOFFS)
    ties = dict(adaptive_inputs=embedding if tied else None, tie_proj=tie_projections)
    softmax = modules.AdaptiveSoftmax(V, D, CUTOFFS, dropout, FACTOR, **ties)
    return torch.nn.ModuleDict(dict(embedding=embedding, softmax=softmax))


def seeded(build, **kwargs):
    """What ``own`` or ``fairseqs`` builds from the same random numbers each time."""
    torch.manual_seed(3)
    return build(**kwargs)


@pytest.fixture(params=KINDS)
def kind(request):
    return KINDS[request.param]


def words(last=V):
    """Every word up to ``last``, in random order, as [3, T]."""
    return torch.randperm(last)[: last // 3 * 3].view(3, -1)


def run(model, tokens):
    """Loss, embeddings, features' gradient, and the parameters' gradients by name; of a training step."""
    embedded = model["embedding"](tokens)
    embedded.retain_grad()
    losses, _ = adaptive_losses(model["softmax"], embedded.tanh(), tokens.roll(1, 1), tokens != PAD, training=True)
    losses.sum().backward()
    named = model.named_parameters()
    return losses, embedded, embedded.grad, {name: p.grad for name, p in named if p.grad is not None}


def test_same_model_as_fairseqs(kind):
    """A seed gives the same parameters, by the same names and in the same order; the state loads in both directions."""
    ours = seeded(own, **kind)
    theirs = seeded(fairseqs, **kind)
    for one, other in ((ours.named_parameters(), theirs.named_parameters()), (ours.items(), theirs.items())):
        assert [name for name, _ in one] == [name for name, _ in other]
    state = ours.state_dict()
    reference = theirs.state_dict()
    assert list(state) == list(reference)
    for name, value in reference.items():
        assert state[name].dtype == value.dtype and state[name].shape == value.shape
        assert "_float_tensor" in name or state[name].equal(value), name  # fairseq leaves that one uninitialised
    ours.load_state_dict(reference)
    theirs.load_state_dict(state)


@pytest.mark.parametrize("dropout", [0.0, 0.4])
@pytest.mark.parametrize("last", [V, CUTOFFS[0]], ids=["all", "shortlist"])
def test_same_computation_as_fairseqs(kind, last, dropout):
    """To the last bit, including which parameters get no gradient."""
    tokens, found = words(last), []
    for build in (own, fairseqs):
        model = seeded(build, dropout=dropout, **kind)
        torch.manual_seed(4)
        found.append(run(model, tokens))
    (*ours, gradients), (*theirs, reference) = found
    assert all(one.equal(other) for one, other in zip(ours, theirs))
    assert gradients.keys() == reference.keys()
    assert all(gradients[name].equal(value) for name, value in reference.items())


def random_softmax(kind, bias):
    """A softmax, all of whose parameters are random, and features [3, 20, D]."""
    softmax = own(bias=bias, **kind)["softmax"]
    for p in softmax.parameters():
        torch.nn.init.normal_(p)
    return softmax, torch.randn(3, 20, D, requires_grad=True)


def test_a_bias_is_added():
    """Imported ones would be wrong if it was subtracted, as trained ones would not."""
    bias = Bias(2)
    bias.bias.data.fill_(3.0)
    assert bias(torch.ones(1, 2)).eq(4).all()


@pytest.mark.parametrize("bias", [False, True])
def test_probabilities(kind, bias, monkeypatch):
    """They add up to 1; with targets, theirs are the same; losses, their gradients and guesses agree with them."""
    softmax, features = random_softmax(kind, bias)
    target = torch.randint(V, (3, 20))
    log_probs = softmax.get_log_prob(features, None)
    torch.testing.assert_close(log_probs.exp().sum(-1), torch.ones(3, 20))
    wanted = log_probs.gather(2, target[..., None])[..., 0]
    some = softmax.get_log_prob(features, target)
    torch.testing.assert_close(some.gather(2, target[..., None])[..., 0], wanted)
    assert some.isinf().any()
    counted = target != target[0, 0]
    monkeypatch.setattr("fb_fairseq.modules.adaptive_losses.CHUNK", 7)
    losses, correct = adaptive_losses(softmax, features, target, counted, training=False)
    torch.testing.assert_close(losses.view(3, 20), -wanted * counted)
    assert correct.equal(log_probs.argmax(-1).eq(target))
    weights = [features, softmax.tail[1][0].weight]
    for one, other in zip(*(torch.autograd.grad(y, weights) for y in (losses.sum(), -(wanted * counted).sum()))):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-5)
    again, nothing = adaptive_losses(softmax, features, target, counted, training=True)
    assert again.equal(losses) and nothing is None, "training makes no guesses"


def test_losses_without_a_cluster(kind):
    """No target is a word of the first one after the shortlist."""
    softmax, features = random_softmax(kind, True)
    some = features[:2, :2]
    target = torch.tensor([[0, V - 1], [3, V - 2]])
    losses, _ = adaptive_losses(softmax, some, target, target >= 0, training=True)
    log_probs = softmax.get_log_prob(some, None)
    torch.testing.assert_close(losses.view(2, 2), -log_probs.gather(2, target[..., None])[..., 0])


@pytest.mark.parametrize("bias", [False, True])
def test_guesses(kind, bias):
    """The most probable words, whatever their cluster."""
    softmax, _ = random_softmax(kind, bias)
    features = 20 * torch.randn(500, D)
    guesses = adaptive_guess(softmax, features)
    assert guesses.equal(softmax.get_log_prob(features[None], None)[0].argmax(-1))
    assert set(torch.bucketize(guesses, torch.tensor(CUTOFFS), right=True).tolist()) == {0, 1, 2}


@pytest.mark.parametrize("half", [torch.bfloat16, torch.float16])
def test_half_precision(kind, half):
    """With parameters in half precision, and under autocast, which keeps the embeddings in the parameters' type."""
    tokens, found = words(), []
    for cast, autocast in ((torch.float32, False), (half, False), (torch.float32, True)):
        model = seeded(own, bias=True, **kind).to(cast)
        with torch.autocast("cpu", half, enabled=autocast):
            losses, embedded, _, gradients = run(model, tokens)
            log_probs = model["softmax"].get_log_prob(embedded, None)
        assert embedded.dtype == cast and losses.dtype == log_probs.dtype == torch.float32
        assert all(gradient.dtype == cast for gradient in gradients.values())
        found.append([losses, embedded, log_probs, *gradients.values()])
    for others in found[1:]:
        for expected, value in zip(found[0], others):
            assert (value - expected).norm() <= 0.03 * expected.norm()


def test_initial_values_can_be_drawn_again(kind):
    """As for a new model, but that tied weights are drawn once."""
    model = own(bias=True, **kind)
    before = {name: p.clone() for name, p in model.named_parameters()}
    model["embedding"].reset_parameters()
    model["softmax"].reset_parameters()
    for name, p in model.named_parameters():
        assert p.equal(before[name]) == name.endswith("bias")
    assert not model["embedding"].embeddings[0][0].weight[PAD].any()


def test_shapes_of_tokens():
    embedding = own()["embedding"]
    assert embedding(torch.zeros(2, 0, dtype=torch.long)).shape == (2, 0, D)
    assert embedding(torch.tensor(V - 1)).equal(embedding(torch.tensor([V - 1]))[0])
    with pytest.raises(RuntimeError):
        embedding(torch.tensor([V]))


def test_a_cluster_smaller_than_the_index_of_padding():
    embedding = AdaptiveEmbedding(10, 3, 8, 2, [5, 7])
    assert embedding(torch.arange(10)).ne(0).any(-1).tolist() == [i != 3 for i in range(10)]
