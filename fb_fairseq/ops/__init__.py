"""The mathematics on tensors. Imports torch only.

Shape suffixes used in every file of ``ops`` and ``modules`` (``x_TBD`` is a block, ``x_BD`` one step):

    B  streams (batch)              H  heads
    T  steps of a block             E  width of a head
    S  attention span               D  model width
    C  context slots, oldest first  F  feed-forward width
    L  layers                       K  memories of a step (1, or one a layer)
    N  values to mix, L + 1         P  pairs of key and value projections (1, or one a layer)
"""
