"""``--optimizer clipped_adagrad``: Adagrad that clips the gradient of each parameter by its own norm (All-attention §5.1)."""

from dataclasses import dataclass, field
from typing import List

import torch
from fairseq.dataclass import FairseqDataclass
from fairseq.optim import FairseqOptimizer, register_optimizer
from omegaconf import II

from fb_fairseq.errors import UserError


class ClippedAdagrad(torch.optim.Adagrad):
    """Adagrad (Duchi et al. 2011). Before each step, the gradient of a parameter (a whole weight matrix, one bias) whose
    norm is above ``clip`` is scaled down to it.

    Args:
        clip: 0 clips nothing.
    """

    def __init__(self, params, lr: float, clip: float = 0.0, eps: float = 1e-10, weight_decay: float = 0.0):
        super().__init__(params, lr=lr, eps=eps, weight_decay=weight_decay)
        for group in self.param_groups:
            group.setdefault("clip", clip)

    @torch.no_grad()
    def step(self, closure=None):
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None and group["clip"]:
                    norm = parameter.grad.norm(dtype=torch.promote_types(parameter.grad.dtype, torch.float32))
                    # (Without a look at the norm from the CPU, which would wait for the GPU.)
                    parameter.grad.mul_((group["clip"] / norm).clamp(max=1.0))
        super().step()
        return loss


@dataclass
class ClippedAdagradConfig(FairseqDataclass):
    adagrad_clip: float = field(
        default=0.03, metadata={"help": "clip the gradient of each parameter to this norm; 0: no clipping"}
    )
    adagrad_eps: float = field(default=1e-10, metadata={"help": "added to the denominator"})
    weight_decay: float = field(default=0.0, metadata={"help": "weight decay"})
    lr: List[float] = II("optimization.lr")


@register_optimizer("clipped_adagrad", dataclass=ClippedAdagradConfig)
class FairseqClippedAdagrad(FairseqOptimizer):
    """fairseq's side. ``--clip-norm``, the norm of all gradients together, acts before it."""

    def __init__(self, cfg: ClippedAdagradConfig, params):
        super().__init__(cfg)
        for name in ("adagrad_clip", "adagrad_eps", "weight_decay"):
            if getattr(cfg, name) < 0:
                raise UserError(f"--{name.replace('_', '-')} {getattr(cfg, name)}: give 0 or more")
        self._optimizer = ClippedAdagrad(params, **self.optimizer_config)

    @property
    def optimizer_config(self):
        """What the command line gives wins over what a checkpoint says."""
        return {
            "lr": self.cfg.lr[0],
            "clip": self.cfg.adagrad_clip,
            "eps": self.cfg.adagrad_eps,
            "weight_decay": self.cfg.weight_decay,
        }

    @property
    def supports_flat_params(self):
        """One flat parameter would have one norm; with ``--fp16`` fairseq asks for ``--fp16-no-flatten-grads``."""
        return False
