"""The illustrative tasks of the Feedback Transformer papers: their data, made from a seed.

A sequence is a pair of equally long lists: input symbols, and their labels (``_``: none). ``tasks.TASKS`` names the tasks.
"""
