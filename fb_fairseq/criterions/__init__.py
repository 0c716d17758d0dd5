"""Criterions that fairseq lacks; importing this folder registers them."""

from fb_fairseq.criterions.lm_loss import LanguageModelLoss

__all__ = ["LanguageModelLoss"]
