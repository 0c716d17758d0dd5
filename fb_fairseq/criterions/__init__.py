"""Criterions that fairseq does not have. Importing this package registers them."""

from fb_fairseq.criterions.lm_loss import LanguageModelLoss

__all__ = ["LanguageModelLoss"]
