"""``fb-fairseq export``: models for Hugging Face transformers.

command.py          the command
models.py           language and translation models for transformers, made of a checkpoint
"""
