"""CUDA graphs of the Triton loop, and of torch's operations where its kernels do not reach.

passes.py    the captured passes over a block
blocks.py    finds the passes for a block, or captures them
steps.py     a captured decoding step, and its memory, whose position is on the device
stepper.py   finds the graph for a step, or captures it
"""
