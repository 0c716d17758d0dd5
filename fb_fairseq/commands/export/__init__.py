"""``python -m fb_fairseq export``: models for Hugging Face transformers."""
