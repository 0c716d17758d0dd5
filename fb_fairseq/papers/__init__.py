"""The papers' experiments, and others. Nothing outside this folder imports it; the list of commands names its modules.

experiments/      the settings of each experiment, with their sources
steps/            ``recipe``, ``quickstart``: experiments as lists of commands, and what runs them
results/          what was run in a folder, and the results of runs
figures/          figures of results
values/           the papers' figures and hyperparameters, as data
toy_tasks/        ``synthetic-tasks``: the data of toy tasks
rl/               ``rl``: reinforcement learning in a corridor, mazes and a water maze
state_tracking/   ``state-tracking``: the Feedback Transformer beside other recurrent models
benchmark/        ``benchmark``: speed and memory of training and decoding, also as in v3 Table 5
compare.py        ``compare``: results of recipes beside the papers' tables
import_original/  ``import-original``: reads checkpoints of the papers' original programs
"""
