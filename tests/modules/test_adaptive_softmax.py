"""Losses and guesses of an adaptive softmax, compared with the distribution over all words."""

import pytest
import torch

from fb_fairseq.modules.adaptive_words import AdaptiveEmbedding, AdaptiveSoftmax, adaptive_guess, adaptive_losses

PAD = 1
WORDS, WIDTH, CUTOFFS = 30, 8, [10, 20]  # a shortlist of 10 words, and two clusters of 10


@pytest.fixture(params=[False, True], ids=["untied", "tied"])
def softmax(request):
    tied = AdaptiveEmbedding(WORDS, PAD, WIDTH, 2, CUTOFFS) if request.param else None
    return AdaptiveSoftmax(WORDS, WIDTH, CUTOFFS, factor=2, tied=tied)


@pytest.fixture
def target():
    """Every word of every cluster, then padding."""
    rows = [torch.arange(0, 12), torch.arange(12, 24), torch.cat([torch.arange(24, 30), torch.full((6,), PAD)])]
    return torch.stack(rows)


def test_losses_are_exact(softmax, target):
    """The loss of every word is that of the full distribution, and zero for padding."""
    features = torch.randn(3, 12, WIDTH, requires_grad=True)
    counted = target.ne(PAD)
    losses, correct = adaptive_losses(softmax, features, target, counted, training=False, chunk=7)
    full = softmax.get_log_prob(features, None)
    expected = -full.gather(2, target[..., None])[..., 0] * counted
    torch.testing.assert_close(losses.view(3, 12), expected, atol=1e-5, rtol=1e-5)
    assert correct.equal(full.argmax(-1).eq(target))
    weight = softmax.tail[1][0].weight
    gradients = [torch.autograd.grad(y, [features, weight]) for y in (losses.sum(), expected.sum())]
    for one, other in zip(*gradients):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-5)


def test_training_makes_no_guesses(softmax, target):
    features = torch.randn(3, 12, WIDTH)
    losses, correct = adaptive_losses(softmax, features, target, target.ne(PAD), training=True)
    assert correct is None
    assert losses.equal(adaptive_losses(softmax, features, target, target.ne(PAD), training=False)[0])


def test_clusters_without_targets(softmax):
    """Only words of the shortlist and of the second cluster."""
    features, target = torch.randn(2, 2, WIDTH), torch.tensor([[0, 25], [9, 29]])
    losses, _ = adaptive_losses(softmax, features, target, target.ne(PAD), training=True)
    expected = -softmax.get_log_prob(features, None).gather(2, target[..., None])
    torch.testing.assert_close(losses, expected.flatten(), atol=1e-5, rtol=1e-5)


def test_guesses(softmax):
    """The most probable of all words, and all parts of the vocabulary are among them."""
    features = 20 * torch.randn(20, 50, WIDTH)
    guesses = adaptive_guess(softmax, features.flatten(0, 1))
    assert guesses.equal(softmax.get_log_prob(features, None).argmax(-1).flatten())
    assert set(torch.bucketize(guesses, torch.tensor(CUTOFFS), right=True).tolist()) == {0, 1, 2}
