"""``fb-fairseq explore``: a page in the browser that shows what a model does with a text.

command.py    the command
reading.py    a text that a model reads step by step, and what it computes
pictures.py   draws that as HTML
page.py       the page; page.css, steps.js: how it looks, and what a click on a token does
"""
