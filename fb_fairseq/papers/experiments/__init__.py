"""The experiments, the papers' and others: their settings as data, and small ones of the same form for a CPU. Language
modelling: char_ptb.py, bytes_and_letters.py, wikitext103.py, persistent_memory.py (All-attention Figure 2) and
memory_composition.py (v1 Table 5), and quickstart.py, a first model in minutes. translation.py and cnn_dm.py,
reinforcement_learning.py, state_tracking.py. corpora/ prepares data, figures/ draws."""
