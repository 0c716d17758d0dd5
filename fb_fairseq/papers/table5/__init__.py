"""``python -m fb_fairseq benchmark table5``: Table 5 of the Feedback Transformer (arXiv 2002.09402, v3 §4.3.4)."""
