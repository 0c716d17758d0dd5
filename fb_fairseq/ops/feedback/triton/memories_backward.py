"""The memories of a step in the Triton loop's backward pass: three kernels."""

from fb_fairseq.ops.feedback.tile import Tile
from fb_fairseq.ops.feedback.triton import attention_backward, memory, products_backward
from fb_fairseq.ops.feedback.triton.forward import BlockKernels

OWN_ROWS = 32  # pairs of a step and a layer that a program of ``own_slot`` reads at a time


def back_memories(kernels: BlockKernels, tile: Tile, i: int) -> None:
    """Compute the gradients of the memories of a tile's step: the contributions of later steps of the tile, and
    those of later tiles, which have been added up.

    Args:
        kernels: of the block.
        tile: its steps after this one have been computed.
        i: the step, counted from the tile's first.
    """
    block = tile.block
    work = tile.work
    launcher = kernels.steps.launcher
    s = block.sizes
    t = tile.first + i
    if t + 1 == s.T:  # no step of the block sees it
        for x in (work.d_kv_ITBZ[:, i], work.d_kv_normed_ITBD[:, i], work.d_memory_KTBD[:, i]):
            x.zero_()
        return
    slots = tile.sums.slots
    d_scores, kept = (x[i + 1 :, :, :, s.S + i :] for x in (work.ds_TLGW, work.p_TLGW))
    launcher.launch(
        attention_backward.own_slot,
        (s.G, s.I, 2),
        d_scores=d_scores,
        kept=kept,
        q=tile.record.q[tile.at + i + 1 :],
        d_out=work.da[i + 1 :],
        d_slots=slots,
        d_kv=work.d_kv_ITBZ[:, i],
        G=s.G,
        later=tile.steps - i - 1,
        slot=s.C + t,
        slots=slots.shape[3],
        side=slots.stride(0),
        scores_row=d_scores.stride(2),
        row=d_scores.stride(1),
        set_stride=work.d_kv_ITBZ.stride(0),
        scale=launcher.scale,
        H=s.H,
        E=s.E,
        L=s.L,
        LAYERS=s.L if s.I == 1 else 1,
        BY=OWN_ROWS,
        BE=launcher.BE,
        num_warps=4,
    )
    norm, key, _ = kernels.slots.sets[0].projections
    d_normed = work.d_kv_normed_ITBD[:, i]
    launcher.product(
        products_backward.product_transposed,
        s.D,
        2 * s.X,
        sets=s.I,
        a=work.d_kv_ITBZ[:, i],
        weight=key.weight,
        out=d_normed,
        N=s.D,
        a_set=work.d_kv_ITBZ.stride(0),
        weight_set=0 if len(key.weight) == 1 else key.weight.stride(0),
        out_set=work.d_kv_normed_ITBD.stride(0),
        INNER=2 * s.X,
    )
    launcher.rows(
        memory.memory_backward,
        sets=s.K,
        d_normed=d_normed,
        memory=block.memory_KTBD[:, t],
        norm_weight=None if norm is None else norm.weight,
        d_memory=work.d_memory_KTBD[:, i],
        set_stride=work.d_kv_normed_ITBD.stride(0),
        memory_stride=block.memory_KTBD.stride(0),
        d_memory_stride=work.d_memory_KTBD.stride(0),
        K=s.K,
        SETS=s.I,
        PROJECTIONS=len(key.weight),
    )
