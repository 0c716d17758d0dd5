"""Advantage actor-critic (A2C; Mnih et al. 2016): returns, and the loss of a block.

Shape suffixes: T steps of a block, B environments, A actions.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from fb_fairseq.papers.rl.options import TrainingOptions


def discounted_returns(rewards_TB: Tensor, ended_TB: Tensor, next_value_B: Tensor, discount: float) -> Tensor:
    """Discounted sums of the rewards from each step to the end of its episode.

    Args:
        rewards_TB: the reward of each step.
        ended_TB: whether the step ended its episode.
        next_value_B: the value after the block, which stands for later rewards of episodes that go on.
        discount: factor of a reward for each step that it comes later, 0 to 1.

    Returns:
        The sums [T, B].
    """
    returns, following = [], next_value_B
    for rewards_B, ended_B in zip(rewards_TB.flip(0), ended_TB.flip(0)):
        following = rewards_B + discount * following.masked_fill(ended_B, 0)
        returns.append(following)
    return torch.stack(returns[::-1])


def a2c_loss(
    options: TrainingOptions, logits_TBA: Tensor, values_TB: Tensor, actions_TB: Tensor, returns_TB: Tensor
) -> Tensor:
    """The A2C loss: policy gradient, squared error of the value, and an entropy bonus, averaged over the block.

    Args:
        options: the weights of the parts.
        logits_TBA: of the policy.
        values_TB: the agent's estimates of the returns; no gradient of the policy's part flows into them.
        actions_TB: the actions taken.
        returns_TB: see ``discounted_returns``.
    """
    log_p_TBA = F.log_softmax(logits_TBA, -1)
    log_p_TB = log_p_TBA.gather(-1, actions_TB[..., None]).squeeze(-1)
    policy = -(log_p_TB * (returns_TB - values_TB).detach()).mean()
    value = (returns_TB - values_TB).square().mean()
    entropy = -(log_p_TBA.exp() * log_p_TBA).sum(-1).mean()
    return policy + options.value_cost * value - options.entropy_cost * entropy
