"""Optimizers that fairseq does not have. Importing this package registers them."""

from fb_fairseq.optim import clipped_adagrad  # noqa: F401
