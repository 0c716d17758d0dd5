"""Figures of results: programs that draw to the output folder of a recipe.

against.py              results against one of their fields, of any recipe
names.py                the names of groups of runs
memory_composition.py, persistent_memory.py, state_tracking.py   those of one experiment
"""
