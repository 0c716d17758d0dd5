"""``python -m fb_fairseq import-original``: convert checkpoints of the papers' original programs. command.py the
command source.py an original checkpoint, and which of its parameters have been imported symbols.py matches its
vocabulary with a fairseq dictionary embeddings.py imports embeddings and output layer layers.py imports everything
else"""
