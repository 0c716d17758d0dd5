"""``python -m fb_fairseq plot``: figures from the logs of training and from checkpoints.

command.py      the command; assemble.py: what its options ask for
logs.py         learning curves from fairseq's logs
checkpoints.py  what models have learned: layer weights, adaptive spans
models.py       the language models that are run, and the texts
attention.py    what they attend to
context.py      how much of the context helps
passes.py       how soon the memory is right that is computed for all steps at once
positions.py    in which part of a sequence a model of labels is right
bins.py         ranges of distances and of contexts
panels.py       draws curves and bars; heat_maps.py: heat maps
"""
