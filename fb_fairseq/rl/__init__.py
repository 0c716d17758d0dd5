"""Reinforcement learning with feedback memory (v3 §4.1.1, §4.2.2, §7.2-7.3; v1 §4.4): needs torch and gymnasium, not fairseq.

    worlds/        the tasks in numpy, many episodes side by side
    environments   the same with gymnasium's API, single and vectorised, registered as ``fb_fairseq/Corridor-v0``, …
    agent          a Feedback Transformer, Transformer or LSTM with a policy and a value
    a2c            training (advantage actor-critic)

``python -m fb_fairseq rl train|evaluate|plot``
"""
