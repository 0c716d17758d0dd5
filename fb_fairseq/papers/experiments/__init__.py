"""The settings of the experiments, the papers' and others, as data; small ones, for a CPU, have the same form.

    settings.py   what settings are made of; sizes.py: sizes of small models that are compared
    char_ptb.py, bytes_and_letters.py, wikitext103.py, wikitext103_tables.py, persistent_memory.py   language modelling
    translation.py, summarization.py          encoder-decoders
    quickstart.py     a first model in minutes
    corpora/          programs that prepare data

Those of toy tasks are in ``papers/toy_tasks``, those of agents in ``papers/rl/presets.py``.
"""
