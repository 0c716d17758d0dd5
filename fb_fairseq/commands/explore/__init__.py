"""``fb-fairseq explore``: a page in the browser that shows what a model does with a text.

command.py    the command
reading.py    a text that a model reads step by step, and what it computes
pictures.py   draws that as HTML; attention.py: attention and memory
actions.py    what the buttons do
page.py       the page; steps.js: what a click on a token does
server.py     serves it; page.css: how it looks
"""
