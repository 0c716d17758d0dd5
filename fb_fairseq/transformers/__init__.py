"""Trained language models in Hugging Face transformers. Needs transformers, and no fairseq."""
