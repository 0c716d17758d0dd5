"""``--step-loop auto``: the fastest loop that agrees with the fast one, found on real blocks and steps.

loop.py      for blocks
stepper.py   for decoding steps
"""
