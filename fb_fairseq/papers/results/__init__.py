"""The results of recipes.

record.py      what was run in an output folder: commands, with their settings, times and hardware
settings.py    the settings of a training, on which its result depends; origins.py: the steps that wrote what it reads
write.py       a command that writes the result of a run from its logs, and collects those of all runs
runs.py        reads results; runs that differ in nothing but their seed are one group
words.py       headings, settings in words, numbers over seeds, and tables
translate.py   a command that translates a test set with the best of several options, and scores it
bits.py        bits per byte of the quickstart
program.py     the command line of these, and of modules that draw a figure
"""
