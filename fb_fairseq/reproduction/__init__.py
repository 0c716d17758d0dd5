"""What it takes to repeat the papers' results, and nobody needs who only uses the models.

The rest of the package does not import this folder. Its commands are in the same list as all others.

    synthetic_tasks/  ``synthetic-tasks``: the data of the papers' toy tasks
    rl/               ``rl``: reinforcement learning in a corridor, mazes and a water maze
    table5/           ``benchmark table5``: speed and memory, as in v3 Table 5
    experiments/      ``recipe``: the papers' experiments, with their settings as data
    compare/          ``compare``: results of recipes beside the papers' tables
    import_original/  ``import-original``: reads checkpoints of the papers' original programs

``fb_fairseq/recipes`` runs the experiments; what the papers report is in ``fb_fairseq/papers``, which tests read, too.
"""
