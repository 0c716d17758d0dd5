"""Reinforcement learning with feedback memory. Needs torch and gymnasium, but not fairseq.

Sections cited as v1 and v3 are those of the Feedback Transformer paper, arXiv 2002.09402: the corridor (v3 §4.1.1),
maze navigation (v3 §4.2.2, §7.2) and the water maze (v3 §7.3, v1 §4.4).

    envs/          the environments, simulated in numpy, and their gymnasium API (``fb_fairseq/Corridor-v0``, …)
    options.py     options of agents and of training, and how they are checked
    presets.py     the papers' settings, and small ones for a CPU
    agent.py       a Feedback Transformer, Transformer or LSTM with a policy and a value
    trainer.py     collects blocks of steps and updates the agent: advantage actor-critic (A2C); checkpoint.pt
    train.py       the training loop: logs, checkpoints, resuming
    log.py         reading and writing log.jsonl, and learning curves
    evaluate.py    reward and success of a trained agent; recordings of episodes
    speed.py       frames per second of training, latency of acting
    command.py     ``python -m fb_fairseq rl train|evaluate|plot|speed``
"""
