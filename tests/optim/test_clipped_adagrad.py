"""Adagrad that clips each gradient by its own norm."""

import pytest
import torch

from fb_fairseq.errors import UserError
from fb_fairseq.optim import ClippedAdagrad, ClippedAdagradConfig, FairseqClippedAdagrad


def parameters():
    """The values of two parameters, always the same."""
    torch.manual_seed(1)
    return [torch.randn(5, 3), torch.randn(4)]


def steps(optimizer, own):
    """Three updates, with gradients of several sizes."""
    for scale in (1.0, 0.01, 3.0):
        for i, parameter in enumerate(own):
            parameter.grad = torch.linspace(-scale, scale, parameter.numel()).view_as(parameter) * (i + 1)
        optimizer.step()


@pytest.mark.parametrize("clip", [0.0, 0.03])
def test_adagrad_with_clipped_gradients(clip):
    """Compared with the update rule written by hand."""
    own = [torch.nn.Parameter(p) for p in parameters()]
    steps(ClippedAdagrad(own, lr=0.07, clip=clip), own)
    for i, (p, ours) in enumerate(zip(parameters(), own)):
        total = torch.zeros_like(p)
        for scale in (1.0, 0.01, 3.0):
            gradient = torch.linspace(-scale, scale, p.numel()).view_as(p) * (i + 1)
            if clip and gradient.norm() > clip:
                gradient = gradient * clip / gradient.norm()
            total += gradient**2
            p -= 0.07 * gradient / (total.sqrt() + 1e-10)
        torch.testing.assert_close(ours.data, p)


def test_zero_and_missing_gradients():
    own = [torch.nn.Parameter(p) for p in parameters()]
    own[0].grad = torch.zeros_like(own[0])
    ClippedAdagrad(own, lr=0.1, clip=0.03).step()
    assert own[0].equal(parameters()[0]) and own[1].equal(parameters()[1])


def test_fairseq_optimizer():
    own = [torch.nn.Parameter(p) for p in parameters()]
    optimizer = FairseqClippedAdagrad(ClippedAdagradConfig(lr=[0.07]), own)
    assert not optimizer.supports_flat_params and optimizer.get_lr() == 0.07
    steps(optimizer.optimizer, own)
    other = FairseqClippedAdagrad(ClippedAdagradConfig(lr=[0.01], adagrad_clip=0.5), own)
    other.load_state_dict(optimizer.state_dict(), optimizer_overrides=other.optimizer_config)
    assert other.param_groups[0]["clip"] == 0.5 and other.get_lr() == 0.01
    assert other.optimizer.state[own[0]]["sum"].equal(optimizer.optimizer.state[own[0]]["sum"])
    with pytest.raises(UserError, match="--adagrad-clip -1"):
        FairseqClippedAdagrad(ClippedAdagradConfig(lr=[0.07], adagrad_clip=-1), own)
