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
    src/step.h         a step of decoding
    src/loop.cpp       the functions that are called from Python
    build.py           compiles them at first use, to a cache folder
    structures.py      the structures of a call's arguments, by ctypes, compared with those of C++
    library.py         the compiled functions, by ctypes
    packing.py         weights in the layout of the products
    arguments.py       fills a call's arguments
    blocks.py          the passes over a block
    step.py            a decoding step; stepper.py: decoding steps, with weights that stay packed
    loop.py            the step loop; what it does not cover runs in the torch loop

It has the same place as the loops of ``forward.py`` and ``backward.py`` in the folder above, whose other parts it
shares: everything that is not sequential is torch's. Why it is faster: each weight is packed once per block, not in
each of many small products; a query's attention goes once over the keys and once over the values; what comes next is
fetched into the cache meanwhile; and nothing is dispatched between. In decoding, weights stay packed as long as they do
not change.
"""
