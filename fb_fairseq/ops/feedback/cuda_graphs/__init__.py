"""CUDA graphs of blocks and of decoding steps, for the Triton loop.

blocks.py    the two passes over a block
ring.py      the memory of a captured step, whose position is on the device
steps.py     a captured decoding step
stepper.py   finds the graph for a step, or captures it
"""
