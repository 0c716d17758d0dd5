"""``python -m fb_fairseq benchmark`` (command.py): time and memory of training and decoding. Needs torch only.

Each of ``all_commands`` is a module whose docstring is its help text, with two functions: ``add_arguments(parser)``
adds its own options; ``run(args)`` measures, prints a table, and returns the results that are printed as JSON. They are
train.py, decode.py, memory.py, span.py and bptt.py, and ``benchmark table5`` in ``fb_fairseq/papers/table5``, which
needs fairseq for two of its tasks. Models are in models.py, stock.py (fairseq's own) and random_models.py
(translation); measure.py has times, memory and tables, options.py the options that several have.
"""
