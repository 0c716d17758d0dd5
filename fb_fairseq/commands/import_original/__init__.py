"""``python -m fb_fairseq import-original``: checkpoints of the papers' own programs as fairseq checkpoints."""
