"""``fb-fairseq explore``: a page in the browser that shows what a model does with a text.

command.py    the command
reading.py    a text that a model reads step by step, and what it computes
text.py, predictions.py, attention.py   the text, the next token, and attention and memory of that, as HTML
weights.py    the layers' weights; parts.py: what pictures consist of
actions.py    what the buttons do
page.py       the page; steps.js: what a click on a token does
server.py     serves it; page.css: how it looks
"""
