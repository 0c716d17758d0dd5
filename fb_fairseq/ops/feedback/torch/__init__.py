"""The torch loop, and what surrounds the steps of every loop.

loop.py        the loop: PyTorch's operations, forward and backward
passes.py      the two passes over a block, around the steps of a loop
block.py       a block's sizes, weights, slots and record of activations
tile.py        workspace and norms of a tile of steps
gradients.py   sums of the weights' gradients over tiles
"""
