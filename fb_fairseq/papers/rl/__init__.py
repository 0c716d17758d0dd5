"""Reinforcement learning with feedback memory. Needs torch and gymnasium, but not fairseq.

Sections cited as v1 and v3 are those of the Feedback Transformer paper, arXiv 2002.09402: the corridor (v3 §4.1.1),
maze navigation (v3 §4.2.2, §7.2) and the water maze (v3 §7.3, v1 §4.4). ``envs/`` has the environments, simulated in
numpy, and their gymnasium API (``fb_fairseq/Corridor-v0``, …).
"""
