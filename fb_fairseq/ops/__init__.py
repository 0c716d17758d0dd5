"""The mathematics, as functions on tensors. Imports torch only; the Triton loop also imports triton.

    feedback/              the Feedback Transformer's step loop: the equations, and loops with their own backward pass
    all_attention.py       the all-attention layer; its reference: all_attention_reference.py
    attention.py           attention with relative positions and adaptive spans, for a step or a block
    span_masks.py          their soft masks; windows.py: slots by their distance from a step
    cross_attention.py     attention to an encoder's output
    layers.py              operations on each step alone: linear maps, norms, feed-forward sublayers
    dropout.py             dropout masks; products.py: types of numbers in products and sums
    cuda_graphs.py         CUDA graphs: capture and replay; capturing.py: where
    captures.py            what runs as a CUDA graph: when it is captured, compared, used, and dropped
    tensor_trees.py        trees of tensors
    agreement.py           whether kernels compute what they should, on real input
    threads.py             CPU threads of the step loops; thread_pool.py: work that they share
    buffers.py             their memory, which blocks use one after the other
    log.py                 lines in the log
    tracing.py             torch.compile and exporters leave them alone

A tensor's name ends in its shape: ``x_TBD`` is a block, ``x_BD`` one step. This is the legend for all of ``ops`` and
``modules``; a digit is a dimension of that size, a lower-case letter a size that the function explains.

    B  streams (batch)                      H  heads
    T  steps of a block                     E  width of a head
    S  attention span, in steps             D  model width
    C  context slots, oldest first          F  width of the feed-forward sublayer
    L  layers                               X  H x E, the width of all heads together
    A  representations of a step, L + 1: the embedding and each layer's output
    K  memories of a step: 1, or L where each layer has its own
    G  B x H: a batch of single-head attentions
    R  rows: steps x streams
    I  sets of keys and values of a step loop: 1, or one per layer
    W  slots that a tile of steps reaches (backward pass)
    Y  steps x layers of a tile (backward pass)
    Z  2 X, keys and values side by side (backward pass)
    J  tensors that a memory ring keeps of a step
    N  persistent vectors
    M  feature vectors of an adaptive softmax
    U  groups of queries with persistent vectors of their own: H, H / 2 or 1
"""
