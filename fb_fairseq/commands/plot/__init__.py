"""``python -m fb_fairseq plot``: figures from the logs of training and from checkpoints.

command.py      the command
logs.py         learning curves from fairseq's logs
checkpoints.py  what models have learned: layer weights, adaptive spans
models.py       the language models that are run, and the texts
attention.py    what they attend to
context.py      how much of the context helps, in which part of a sequence a model of labels is right, and how soon the
                memory is right that is computed for all steps at once
panels.py       draws curves, bars and heat maps
"""
