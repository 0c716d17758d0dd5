"""Decoding step by step: what is kept from step to step, and what runs a step. Nothing here has parameters.

    memory.py     what all memories of decoding have in common
    ring.py       the last S steps of each stream, in slots
    storage.py    what a slot holds: keys and values, or memory vectors
    window.py     a layer's attention over the slots, operation by operation
    state.py      a ring and an encoder's keys and values: what a decoder of translations keeps
    stepper.py    the interface of what runs steps, and the plain one

The loops' own ways to run a step are in their folders: ``native/stepper.py``, ``graph/stepper.py`` and
``automatic/stepper.py``.
"""
