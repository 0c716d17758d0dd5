"""The Triton loop: five Triton kernels per layer and step each way, and a few around them, in CUDA graphs.

One kernel per dependent product, with the norm before and the residual after it fused in. Attention records no weights:
its backward kernel computes them again, and leaves them for the products after a tile of steps.

    loop.py          the loop; it can be imported without Triton
    forward.py       the kernels of a step
    backward.py      the kernels of a tile's steps backward; memories_backward.py: of the steps' memories
    steps.py         a decoding step
    slots.py         keys and values of a block or a ring, as kernels read and write them
    products.py      linear maps with norms, activations, dropout and residual connections
    products_backward.py   what the backward pass needs of them
    activations.py   activations and their derivatives
    attention.py     attention; attention_backward.py: its gradients
    memory.py        merging, projection, and its gradients
    launches.py      what launches have in common; tiles.py: the sizes of the kernels' tiles
"""
