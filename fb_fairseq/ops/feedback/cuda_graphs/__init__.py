"""CUDA graphs of the Triton loop, and of torch's operations where its kernels do not reach.

passes.py    the captured passes over a block
blocks.py    finds the passes for a block, or captures them
steps.py     a captured decoding step and its memory; device_ring.py: its slots, whose position is on the device
padding.py   the shapes that steps are captured for
stepper.py   finds the graph for a step, or captures it
"""
