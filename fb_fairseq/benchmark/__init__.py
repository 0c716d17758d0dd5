"""``python -m fb_fairseq benchmark``: time and memory of training and decoding. Needs torch only, except ``table5``.

Each of ``COMMANDS`` in ``command.py`` is a module whose docstring is its help text, with two functions:
``add_arguments(parser)`` adds its own options; ``run(args)`` measures, prints a table, and returns the results that are
printed as JSON.
"""
