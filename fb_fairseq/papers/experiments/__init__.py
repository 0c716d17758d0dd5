"""The experiments, the papers' and others: their settings as data, and small ones of the same form for a CPU.

    char_ptb.py, bytes_and_letters.py, wikitext103.py   language modelling
    persistent_memory.py      the ablation of All-attention Figure 2
    translation.py, cnn_dm.py translation and summarization
    state_tracking.py         the toy tasks of ``state-tracking``, beside other recurrent models
    reinforcement_learning.py the mazes and the corridor
    quickstart.py             a first model, in minutes
    memory_composition.py     v1 Table 5, on the walk and on PTB
    corpora/, figures/        preparing their data; their figures

``python -m fb_fairseq recipe NAME`` runs them (``fb_fairseq/papers/runner``).
"""
