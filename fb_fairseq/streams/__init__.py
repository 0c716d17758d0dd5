"""The data path of carried memory. A corpus is cut into parallel streams, and streams into blocks.

    layout.py        which targets each stream, block and batch has; how far a run has come within an epoch
    bptt_warmup.py   the length of blocks, when training begins with short ones
    state.py         the memory of the streams from one block to the next
    memory_files.py  the memory of streams in files beside a checkpoint
    resume.py        what happens beside the saving and loading of checkpoints
    fairseq/         corpora, batches and the epoch iterator, for fairseq's trainer

Only ``fairseq/`` needs fairseq."""
