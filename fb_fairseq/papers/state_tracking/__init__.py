"""State tracking: the Feedback Transformer beside the recurrent and parallel models of today, on tasks with a label for
each step. The table of models is in ``architectures.py``: add your own there."""
