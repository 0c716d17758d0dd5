"""``fb-fairseq import-original``: convert checkpoints of the papers' original programs."""
