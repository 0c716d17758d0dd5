"""The torch loop: one autograd function per block, with a backward pass written by hand, operation by operation.

loop.py        the autograd function, and what the loops that build on it share
block.py       a block's sizes, weights and slots
forward.py     its forward pass
backward.py    its backward pass, in tiles of steps
tile.py        workspace and norms of a tile of steps
gradients.py   sums of the weights' gradients over tiles
"""
