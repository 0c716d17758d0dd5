"""``python -m fb_fairseq benchmark``: time and memory of training and decoding. Needs torch only.

Each of ``all_commands`` in ``command.py`` is a module whose docstring is its help text, with two functions:
``add_arguments(parser)`` adds its own options; ``run(args)`` measures, prints a table, and returns the results that are
printed as JSON. ``benchmark table5`` (v3 Table 5) is in ``fb_fairseq/papers``, and needs fairseq for two of its tasks.
"""
