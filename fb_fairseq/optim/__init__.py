"""What fairseq's optimizers lack. Importing this folder registers them."""

from fb_fairseq.optim import clipped_adagrad  # noqa: F401
