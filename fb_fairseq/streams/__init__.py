"""The data path of carried memory.

A corpus is cut into parallel streams, and streams into blocks (``corpus``, ``labels``, ``layout``, ``dataset``,
``bptt_warmup``). fairseq's trainer gets the blocks in order (``iterator``), each with a handle on the memory that its
streams carry (``state``). Checkpoints in mid-epoch save that memory too (``position``, ``memory_files``, ``resume``).
"""
