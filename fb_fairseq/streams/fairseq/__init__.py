"""fairseq's side of the streams: its indexed datasets are read as streams, its trainer gets their blocks in order.

corpus.py     the tokens of a split as one long sequence; its dataset in batches of a layout; scores line by line
labels.py     the same for sequences of symbols and their labels
iterator.py   the epoch iterator: serves the blocks in order, saves and restores the memory of the streams
"""
