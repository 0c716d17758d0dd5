"""``fb-fairseq import-original`` (command.py): convert checkpoints of the papers' original programs.

layers.py       the tensors of a checkpoint, and its layers
embeddings.py   embeddings and output layer
dictionary.py   the vocabulary
"""
