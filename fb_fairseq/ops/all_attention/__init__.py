"""The all-attention layer (Sukhbaatar et al., arXiv 1907.01470).

reference.py    slot by slot, to be read beside the paper
block.py        a block or a step at once
persistent.py   attention to persistent vectors
"""
