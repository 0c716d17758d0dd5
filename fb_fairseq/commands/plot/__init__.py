"""``python -m fb_fairseq plot``: figures from the logs of training and from checkpoints."""
