"""``python -m fb_fairseq explore``: a page in the browser that shows what a model does with a text.

command.py    the command
loading.py    a checkpoint or an exported model behind one interface
text.py       texts as tokens, and tokens as text
reading.py    what a model computes while it reads a text, step by step
pictures.py   draws that as HTML and SVG; style.py: their colours
page.py       the page
"""
