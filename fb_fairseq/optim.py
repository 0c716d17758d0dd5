"""``--optimizer clipped_adagrad``: Adagrad that clips the gradient of each parameter separately.

The optimizer of All-attention §5.1 (arXiv 1907.01470) for character-level language models.
"""

from dataclasses import dataclass
from typing import List  # noqa: UP035

import torch
from fairseq.dataclass import FairseqDataclass
from fairseq.optim import FairseqOptimizer, register_optimizer
from omegaconf import II

from fb_fairseq.command_line import option
from fb_fairseq.errors import UserError, flag


class ClippedAdagrad(torch.optim.Adagrad):
    """Adagrad (Duchi et al. 2011) with a maximum norm for the gradient of each parameter tensor.

    Args:
        params: parameters, or groups of them, as ``torch.optim.Adagrad`` takes them.
        lr: learning rate.
        clip: maximum norm of a weight matrix's or bias vector's gradient; larger ones are scaled down to it before each
            step. 0: no clipping.
        eps: term added to the denominator for numerical stability.
        weight_decay: factor of the L2 penalty, whose gradient is not clipped.
    """

    def __init__(self, params, lr: float, clip: float = 0.0, eps: float = 1e-10, weight_decay: float = 0.0):
        super().__init__(params, lr=lr, eps=eps, weight_decay=weight_decay)
        for group in self.param_groups:
            group.setdefault("clip", clip)

    @torch.no_grad()
    def step(self, closure=None):
        """Clip the gradients, then update the parameters.

        Args:
            closure (optional): evaluates the model again and returns the loss.

        Returns:
            The closure's loss; None without closure.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None and group["clip"]:
                    norm = parameter.grad.norm(dtype=torch.promote_types(parameter.grad.dtype, torch.float32))
                    # No ``if norm > clip``: it would make the CPU wait for the GPU.
                    parameter.grad.mul_((group["clip"] / norm).clamp(max=1.0))
        super().step()
        return loss


@dataclass
class ClippedAdagradConfig(FairseqDataclass):
    """Options of ``--optimizer clipped_adagrad``."""

    adagrad_clip: float = option(0.03, "maximum norm of the gradient of each parameter tensor; 0: no clipping")
    adagrad_eps: float = option(1e-10, "added to the denominator for numerical stability")
    weight_decay: float = option(0.0, "factor of the L2 penalty")
    lr: List[float] = II("optimization.lr")  # noqa: UP006


@register_optimizer("clipped_adagrad", dataclass=ClippedAdagradConfig)
class FairseqClippedAdagrad(FairseqOptimizer):
    """Adagrad that clips the gradient of each parameter separately (``ClippedAdagrad``).

    ``--clip-norm``, which limits the norm of all gradients together, is applied first.
    """

    def __init__(self, cfg: ClippedAdagradConfig, params):
        super().__init__(cfg)
        values = {name: getattr(cfg, name) for name in ("adagrad_clip", "adagrad_eps", "weight_decay")}
        values["lr"] = min(cfg.lr)
        for name, value in values.items():
            if not value >= 0:
                raise UserError(f"{flag(name)} {value}: give 0 or more")
        self._optimizer = ClippedAdagrad(params, **self.optimizer_config)

    @property
    def optimizer_config(self):
        """Options of ``ClippedAdagrad`` from the command line; they override those saved in a checkpoint."""
        return {
            "lr": self.cfg.lr[0],
            "clip": self.cfg.adagrad_clip,
            "eps": self.cfg.adagrad_eps,
            "weight_decay": self.cfg.weight_decay,
        }

    @property
    def supports_flat_params(self):
        """False: a flat tensor of all parameters has only one norm. With ``--fp16``, fairseq then requires
        ``--fp16-no-flatten-grads``.
        """
        return False
