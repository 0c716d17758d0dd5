"""``fb-fairseq plot``: figures from the logs of training and from checkpoints; and what other commands use to
look into models.

command.py      the command
logs.py         learning curves
checkpoints.py  layer weights and adaptive spans
models.py       the language models that are run, and the texts
measures.py     what models attend to; how much context helps them; how right they are
panels.py       draws curves, bars and heat maps
"""
