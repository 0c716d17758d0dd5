"""fairseq's side of the streams: its indexed datasets are read as streams, its trainer gets their blocks in order.

corpus.py     the tokens of a split as one long sequence
labels.py     the same for sequences of symbols and their labels
dataset.py    a split that is served in the batches of a layout
lines.py      the scores of a pass, line by line
iterator.py   the epoch iterator: serves the blocks in order, saves and restores the memory of the streams
"""
