"""Where the steps of a tile leave their gradients, in a loop's backward pass."""

from torch import Tensor

from fb_fairseq.ops.feedback.block import Block

ALIGNED = 16  # numbers; products on tensor cores need aligned rows


class Workspace:
    """Per-step gradients that become weight gradients after the tile. Made once per block, used by all tiles.

    Attributes:
        dq, da: gradients of queries and of attended vectors [T, L, B, X]; ``dcq``, ``dca``: the same for
            attention to the encoder.
        d_attention, d_ffn, d_crossed: gradients of the sublayers' outputs, after dropout [L, T, B, D].
        d_hidden: gradient of the feed-forward sublayer's hidden vector, before its activation [L, T, B, F].
        d_attn_norm, d_ffn_norm, d_cross_norm: gradients of the norms' results [L, T, B, D].
        d_kv_ITBZ: gradients of each step's keys and values, side by side; d_kv_normed_ITBD: of the normed memories.
        d_memory_KTBD: gradients of the memories.
        ds_TLGW: the scores' gradients; ``p_TLGW``: attention weights after dropout. Both by slot: the window of the
            tile's step i begins in column i. ``ds_TLGS`` and ``p_TLGS`` are their windows, by distance.
        dcs: gradients of the scores of attention to the encoder, before their scale [T, L, G, C].
        cross_p: that attention's weights after dropout [T, L, G, C], where they are not recorded; else None.
    """

    def __init__(self, block: Block, steps: int):
        s, allocator = block.sizes, block.allocator
        L, B = s.L, s.B
        self.dq = allocator.of_heads(steps)
        self.da = allocator.of_heads(steps)
        self.d_attention = allocator.by_layer(steps, s.D, compute=True)
        self.d_ffn = allocator.by_layer(steps, s.D, compute=True)
        self.d_hidden = allocator.by_layer(steps, s.F, compute=True)
        self.d_attn_norm = allocator.by_layer(steps, s.D)
        self.d_ffn_norm = allocator.by_layer(steps, s.D)
        self.d_kv_ITBZ = allocator.new_compute(s.I, steps, B, 2 * s.X)
        self.d_kv_normed_ITBD = allocator.new(s.I, steps, B, s.D)
        self.d_memory_KTBD = allocator.new(s.K, steps, B, s.D)
        self.dcq = self.dca = self.d_crossed = self.d_cross_norm = self.dcs = self.cross_p = None
        if s.sources:
            self.dcq = allocator.of_heads(steps)
            self.dca = allocator.of_heads(steps)
            self.d_crossed = allocator.by_layer(steps, s.D, compute=True)
            self.d_cross_norm = allocator.by_layer(steps, s.D)
            self.dcs = allocator.new_compute(steps, L, s.G, s.sources)
            self.cross_p = None if block.records_weights else allocator.new_compute(steps, L, s.G, s.sources)
        self.ds_TLGW = by_slot(block, steps)
        self.p_TLGW = by_slot(block, steps)
        self.ds_TLGS = step_windows(self.ds_TLGW, s.S)
        self.p_TLGS = step_windows(self.p_TLGW, s.S)

    def clear_windows(self) -> None:
        """Zero what is laid out by slot, before a tile whose steps or layers do not reach all of it."""
        self.ds_TLGW.zero_()
        self.p_TLGW.zero_()


def by_slot(block: Block, steps: int) -> Tensor:
    """Zeros for a number per step, layer, head and slot [T, L, G, W]; head by head in memory where weights are not
    recorded, as the products after the steps read them.
    """
    s = block.sizes
    width = s.S + steps - 1
    if block.records_weights:
        return block.allocator.new_compute(steps, s.L, s.G, width).zero_()
    width = -(-width // ALIGNED) * ALIGNED
    return block.allocator.new_compute(s.G, steps, s.L, width).zero_().permute(1, 2, 0, 3)


def step_windows(x_TLGW: Tensor, span: int) -> Tensor:
    """The windows [T, L, G, S] of a tile's steps: step i's begins in column i.

    They are a view, to be written to; ``fb_fairseq.ops.windows.by_distance`` copies.
    """
    step, layer, head, _ = x_TLGW.stride()
    return x_TLGW.as_strided((*x_TLGW.shape[:3], span), (step + 1, layer, head, 1))
