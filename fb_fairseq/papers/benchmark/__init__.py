"""``fb-fairseq benchmark`` (command.py): time and memory of training and decoding. Needs torch; two tasks of
Table 5 also need fairseq.

    train.py    training; comparisons.py: of step loops, shorter spans, longer blocks
    decode.py   decoding of an endless stream
    table5.py   Table 5 of the Feedback Transformer (arXiv 2002.09402, v3 §4.3.4)
    tracking.py training and decoding of the models of ``state-tracking``

Each is a command: its docstring is the help text, ``add_arguments(parser)`` adds its options, and ``run(args)``
measures, prints a table, and returns what is printed as JSON.

    timing.py    times; memory.py: memory; work.py: what is measured; tables.py: its table
    models.py    models without embeddings and output layer; options.py: the options of train and decode
    tasks.py     what the tasks of Table 5 have in common, and the papers' figures
    language_modelling.py, translation.py, agents.py   these tasks; the first two need fairseq
    random_models.py   models of translation with random parameters
"""
