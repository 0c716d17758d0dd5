"""The step loop of the Feedback Transformer (Fan et al., arXiv 2002.09402).

types.py       weights, options and dropout masks of the loop
reference.py   the equations: a step, and the loop around it, under autograd; to be read beside the paper
step_loop.py   what a step loop is
loops.py       all step loops, by name
torch/         one autograd function per block, with a backward pass written by hand
cuda_graphs/   CUDA graphs of blocks and of decoding steps
triton/        a few Triton kernels per layer and step, as CUDA graphs
cpp/           the same in C++
automatic.py   --step-loop auto: the choice among them
decoding/      what decoding keeps from step to step, and what runs a step
"""
