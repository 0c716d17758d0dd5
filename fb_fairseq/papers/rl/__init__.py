"""Reinforcement learning with feedback memory. Needs torch, but not fairseq. Sections cited as v1 and v3
are those of the Feedback Transformer paper, arXiv 2002.09402: the corridor (v3 §4.1.1), maze navigation (v3 §4.2.2,
§7.2) and the water maze (v3 §7.3, v1 §4.4). envs/ has the environments, agent.py the agents, options.py, checks.py
and presets.py their options and the papers' settings. play.py lets an agent act in environments, a2c.py has the loss,
trainer.py trains an agent, runs.py in a loop with checkpoints and a log (log.py, which draws it, too); evaluate.py
measures; command.py is ``fb-fairseq rl``.
"""
