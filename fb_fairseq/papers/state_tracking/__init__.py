"""State tracking: the Feedback Transformer beside the recurrent and parallel models of today, on tasks with a label for
each step.

    problems.py       sequences of a task as tensors
    bodies.py         models of one interface: a block of steps at once, or step by step
    architectures.py  the table of models; add your own here
    trainer.py        what is trained and how: options, curriculum, checkpoints
    evaluation.py     accuracy by position; steps per second of training and of decoding
    command.py        python -m fb_fairseq state-tracking
"""
