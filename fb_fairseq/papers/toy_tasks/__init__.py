"""Data of the illustrative tasks of the Feedback Transformer paper (arXiv 2002.09402, Table 1), and of other tasks that
need a state or a memory, generated from a seed.

In comments, "v1" and "v3" are versions of the paper on arXiv. Needs neither torch nor fairseq.

    tasks.py          the tasks by name, with their options and sizes
    copying.py        copying, reversing and counting
    walks.py          random walks on a grid
    algorithmic.py    programs whose variables the model has to track
    groups.py         word problems of finite groups
    recall.py         multi-query associative recall
    arithmetic.py     modular arithmetic with brackets
    sequence.py       the type of all generated data
    seeded_random.py  random choices that are the same everywhere
    options.py        the kinds of options that a task has
    command.py        writes the data of a task
"""
