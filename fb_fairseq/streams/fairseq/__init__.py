"""fairseq's side of the streams: its indexed datasets are read as streams, its trainer gets their blocks in order.

corpus.py     the tokens of a split as one long sequence
labels.py     sequences of symbols and their labels, likewise
dataset.py    both as a dataset of fairseq, in batches of a layout
iterator.py   the epoch iterator: serves the blocks in order, saves and restores the memory of the streams
"""
