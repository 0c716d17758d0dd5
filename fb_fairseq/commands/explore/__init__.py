"""``python -m fb_fairseq explore``: a page in the browser that shows what a model does with a text.

command.py    the command
reading.py    a checkpoint or an exported model, its texts and tokens, and what it computes step by step
pictures.py   draws that as HTML and SVG
page.py       the page; page.css, steps.js: how it looks, and what a click on a token does
"""
