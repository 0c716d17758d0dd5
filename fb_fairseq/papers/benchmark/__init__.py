"""``python -m fb_fairseq benchmark`` (command.py): time and memory of training and decoding. Needs torch only.

Each of ``all_commands`` is a module whose docstring is its help text, with two functions: ``add_arguments(parser)``
adds its own options; ``run(args)`` measures, prints a table, and returns the results that are printed as JSON. They are
train.py, decode.py, memory.py, span.py and bptt.py, and ``benchmark table5`` in ``fb_fairseq/papers/table5``, which
needs fairseq for two of its tasks. Models, and the options that several have, are in models.py, those of translation in
random_models.py; measure.py has times, memory and tables.
"""
