"""``python -m fb_fairseq benchmark``: what training and decoding cost in time and memory. Needs torch only."""
