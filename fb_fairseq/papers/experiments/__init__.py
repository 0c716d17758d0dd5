"""The experiments, the papers' and others: their settings as data, and small ones of the same form for a CPU. Language
modelling: char_ptb.py, bytes_and_letters.py (also All-attention Figure 2), wikitext103.py and memory_composition.py (v1
Table 5), and quickstart.py, a first model in minutes. Then translation.py, reinforcement_learning.py and
state_tracking.py. corpora/ prepares data, figures/ draws."""
