"""State tracking: the Feedback Transformer beside the recurrent and parallel models of today, on tasks with a label for
each step (problems.py). architectures.py has the table of models, of bodies.py's interface: add your own there.
cells.py has recurrent layers that no package here has. options.py says what is trained; trainer.py and evaluation.py
train and test models, export.py writes them for other programs, command.py is ``fb-fairseq state-tracking``.
"""
