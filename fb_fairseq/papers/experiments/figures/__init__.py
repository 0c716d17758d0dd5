"""The figures of the experiments: synthetic_tasks.py, reinforcement_learning.py and state_tracking.py of all runs,
persistent_memory.py (All-attention Figure 2) and memory_composition.py (v1 Table 5 as bars)."""
