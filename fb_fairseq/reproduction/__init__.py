"""What it takes to repeat the papers' results, and nobody needs who only uses the models.

The rest of the package does not import this folder. Its commands are in the same list as all others.

    synthetic_tasks/  ``synthetic-tasks``: the data of the papers' toy tasks
    rl/               ``rl``: reinforcement learning in a corridor, mazes and a water maze
    table5/           ``benchmark table5``: speed and memory, as in v3 Table 5
    compare/          ``compare``: results of recipes beside the papers' tables
    import_original/  ``import-original``: reads checkpoints of the papers' original programs

The recipes are in ``examples/``; what the papers report is in ``fb_fairseq/papers``, which recipes and tests read too.
"""
