"""The step loop of the Feedback Transformer (Fan et al., arXiv 2002.09402).

types.py       weights, options and dropout masks of the loop
reference.py   the equations: a step, and the loop around it, under autograd; to be read beside the paper
loop.py        a loop as its author writes it: four functions
loops.py       the table of loops, --step-loop auto, and what runs a block
stepper.py     runs decoding steps; step_inputs.py: their arguments
autograd.py    a block as one node of autograd's graph
passes.py      the two passes over a block: of the reference, or around the steps of a loop
block.py       a block's data, and its slots for keys and values
weights.py, record.py   its weights in the compute type, and the record of its activations
tile.py, workspace.py   a tile of steps backward, and where the steps leave their gradients
gradients.py   the sums of the weights' gradients over tiles
cpp/           the steps in C++
triton/        the steps in a few Triton kernels per layer
cuda_graphs/   blocks and decoding steps as CUDA graphs
step_memory.py  what a memory of decoding is, of any model
ring.py        the memory of decoding: the last S steps of each stream in slots, and a layer's attention over them
decoding.py    the state of a decoder with an encoder
"""
