"""``python -m fb_fairseq benchmark``: time and memory of training and decoding. Needs torch only.

Each of ``all_commands`` in ``command.py`` is a module whose docstring is its help text, with two functions:
``add_arguments(parser)`` adds its own options; ``run(args)`` measures, prints a table, and returns the results that are
printed as JSON.

    command.py         the command
    train.py           training of a block: speed, and the gradients of all step loops
    decode.py          decoding step by step
    memory.py          peak memory of a block
    span.py, bptt.py   what spans and blocks of other lengths cost
    models.py          the models that are measured; stock.py: fairseq's own; random_models.py: translation models
    measure.py         times, memory, tables
    options.py         options that several benchmarks have

``benchmark table5`` (v3 Table 5) is in ``fb_fairseq/papers``, and needs fairseq for two of its tasks.
"""
