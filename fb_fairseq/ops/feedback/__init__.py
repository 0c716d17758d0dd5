"""The step loop of the Feedback Transformer (Fan et al., arXiv 2002.09402).

types.py       weights, options and dropout masks of the loop
reference.py   the loop under autograd, to be read beside the paper
step.py        one decoding step, on a memory ring
fast.py        the loop as one autograd function per block
  block.py       a block's sizes, weights and slots
  forward.py     its forward pass
  backward.py    its backward pass, written by hand, in tiles of steps
  tile.py        workspace and norms of a tile of steps
  gradients.py   sums of the weights' gradients over tiles
graph.py       the fast loop as CUDA graphs
native/        the fast loop and decoding steps in C++
select.py      which loop runs
"""
