"""The step loop in C++: the sequential part of a block, forward and backward, and decoding steps, on a CPU in fp32.

    src/vectors.h      vectors as wide as the registers
    src/products.h     products of few rows with packed matrices
    src/attention.h    one query over the slots of one head
    src/arguments.def  the fields of a call's arguments, with the shapes of the tensors
    src/arguments.h    structures of these fields, and a description of them
    src/rows.h         layer norms, activations, dropout
    src/range.h        where the numbers of a range of streams lie
    src/forward.h      a step of a block, forward
    src/backward.h     a step of a block, backward
    src/loop.cpp       a step of decoding, and the functions that are called from Python
    library.py         compiles them at first use, to a cache folder; the compiled functions, by ctypes
    structures.py      structures of the arguments, by ctypes, made from src/arguments.def
    packing.py         weights in the layout of the products
    arguments.py       fills a call's arguments
    blocks.py          the calls for a block
    steps.py           decoding steps; packed_model.py: weights that stay packed; step_call.py: a call
    loop.py            the loop

C++ runs the steps one after the other; everything before and after them is shared (``passes.py``). Why it is
faster: each weight is packed once per block, not in each of many small products; a query's attention goes once over the
keys and once over the values; it prefetches, and makes no Python or torch call inside a step. In decoding, weights stay
packed as long as they do not change.
"""
