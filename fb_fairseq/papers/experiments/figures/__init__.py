"""The figures of the experiments, and tables of several seeds.

synthetic_tasks.py, reinforcement_learning.py   of all runs of a task or environment
persistent_memory.py                            All-attention Figure 2
state_tracking.py                               accuracy by position, and a table
memory_composition.py                           v1 Table 5 as bars
"""
