"""The Triton loop: five Triton kernels per layer and step each way, and a few around them, in CUDA graphs.

Each kernel does what has to wait for the one before it, and all that can go with it: a norm in the prologue of the
product that reads it, a residual connection in the epilogue. Attention records no weights: its backward kernel computes
them again, and leaves them for the torch loop's products after a tile of steps. All that is not sequential is the fast
loop's.

    loop.py          the step loop; it can be imported without Triton
    stepper.py       decoding steps; it, too, can be imported without Triton
    run.py           the two passes over a block
    forward.py       the forward pass
    backward.py      the backward pass
    steps.py         a decoding step
    gradients.py     sums of gradients after a tile of steps
    products.py      kernels of linear maps with norms, activations, dropout and residual connections
    attention.py     kernels of attention, forward and backward
    memory.py        kernels of the memory: merging, projection, and its gradients
    activations.py   activations and derivatives in Triton
    launches.py      what launches have in common
    tiles.py         sizes of the kernels' tiles
"""
