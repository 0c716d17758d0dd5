"""CUDA graphs of the Triton loop, and of torch's operations where its kernels do not reach.

blocks.py    the two passes over a block
steps.py     a captured decoding step, and its memory, whose position is on the device
stepper.py   finds the graph for a step, or captures it
"""
