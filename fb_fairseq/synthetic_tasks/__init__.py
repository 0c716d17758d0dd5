"""Data of the illustrative tasks of the Feedback Transformer paper (arXiv 2002.09402, Table 1), generated from a seed.

``tasks.TASKS`` lists the tasks by name; ``command`` writes their data. In comments, "v1" and "v3" are versions of the
paper on arXiv. Needs neither torch nor fairseq.
"""
