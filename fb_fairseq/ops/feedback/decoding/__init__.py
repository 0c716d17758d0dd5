"""Decoding step by step: what is kept from step to step. Nothing here has parameters.

ring.py       the last S steps of each stream, in slots; a layer's attention over them, operation by operation
storage.py    what a slot holds: keys and values, or memory vectors
state.py      a ring and an encoder's keys and values: what a decoder of translations keeps
stepper.py    a model whose steps are run, and a step operation by operation

The loops' own steps are in their folders: ``cpp/steps.py``, ``triton/steps.py``, ``cuda_graphs/stepper.py``.
"""
