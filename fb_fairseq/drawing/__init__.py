"""Figures of training curves, results and models, in one style.

figure.py   panels in rows, their legends, and the file
marks.py    lines, points, bands and words on axes
models.py   the names and colours of models
style.py    sizes, fonts and colours
"""
