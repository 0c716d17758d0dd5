"""``python -m fb_fairseq export``: models for Hugging Face transformers.

command.py          the command
source.py           what is exported: a checkpoint, its options and dictionaries
models.py           language and translation models for transformers
code.py             the code that they need, for trust_remote_code
"""
