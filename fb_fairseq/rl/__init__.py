"""Reinforcement learning with feedback memory. Needs torch and gymnasium, but not fairseq.

Sections cited as v1 and v3 are those of the Feedback Transformer paper, arXiv 2002.09402: the corridor (v3 §4.1.1),
maze navigation (v3 §4.2.2, §7.2) and the water maze (v3 §7.3, v1 §4.4).

    envs/        the environments, simulated in numpy, and their gymnasium API (``fb_fairseq/Corridor-v0``, …)
    options      options of agents and of training, and how they are checked
    presets      the papers' settings, and small ones for a CPU
    agent        a Feedback Transformer, Transformer or LSTM with a policy and a value
    a2c          returns and loss of advantage actor-critic (A2C)
    trainer      collects blocks of steps and updates the agent
    train        the training loop: logs, checkpoints, resuming
    checkpoint   reading and writing checkpoint.pt
    log          reading and writing log.jsonl
    evaluate     reward and success of a trained agent; recordings of episodes
    speed        frames per second of training, latency of acting
    plot         learning curves
    command      ``python -m fb_fairseq rl train|evaluate|plot|speed``
"""
