"""``fb-fairseq plot``: figures from the logs of training and from checkpoints.

command.py      the command; kinds.py: its panels
logs.py         learning curves
checkpoints.py  layer weights and adaptive spans
models.py       runs models on a text
measures.py     what models attend to; persistent.py: persistent vectors
context.py      how much context helps them
panels.py       draws curves, bars and heat maps
"""
