"""The data path of carried memory. A corpus is cut into parallel streams, and streams into blocks.

    layout.py        which targets each stream, block and batch has, BPTT warm-up
    position.py      how far a run has come in an epoch
    state.py         the memory of the streams from one block to the next
    checkpoints.py   the memory of streams in files beside a checkpoint
    hooks.py         the hooks of streams, which run whenever fairseq loads or saves a checkpoint
    fairseq/         corpora, batches and the epoch iterator, for fairseq's trainer

Only ``fairseq/`` needs fairseq.
"""
