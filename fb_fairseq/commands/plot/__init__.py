"""``fb-fairseq plot``: figures from the logs of training and from checkpoints; and what other commands use to
look into models.

command.py      the command
logs.py         learning curves
checkpoints.py  layer weights and adaptive spans
texts.py        the texts that language models are run on
measures.py     what models attend to, and how much context helps them
panels.py       draws curves, bars and heat maps
"""
