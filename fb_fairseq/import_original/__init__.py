"""``python -m fb_fairseq.import_original``: checkpoints of the papers' own programs as fairseq checkpoints."""
