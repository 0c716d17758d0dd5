"""Name a file of data that is cut off, or no dictionary, before training."""

import struct

from fb_fairseq.errors import UserError
from fb_fairseq.patches.wrapping import wrap_once


def patch_cut_data() -> None:
    """Refuse data of ``--dataset-impl mmap``, fairseq's default, of which the end is missing, when they are loaded.

    fairseq reports a cut ``.bin`` file where it reads that part, as ``buffer is smaller than requested size``: after
    hours of training, perhaps.
    """
    from fairseq.data import indexed_dataset

    wrap_once(indexed_dataset, "make_dataset", "cut_data", _make_whole)


def _make_whole(original, path, impl, *args, **kwargs):
    try:
        dataset = original(path, impl, *args, **kwargs)
        if impl == "mmap" and dataset is not None and len(dataset):
            dataset[len(dataset) - 1]
    except (struct.error, ValueError, AssertionError):  # ValueError: numpy's, of a file shorter than its index says
        raise UserError(
            f"{path}.idx, .bin: one of them is cut off, or not of --dataset-impl {impl}; prepare the data again "
            "(fairseq-preprocess, or fb-fairseq preprocess-bytes)"
        ) from None
    return dataset


def patch_wrong_dictionary() -> None:
    """Refuse a file that is no dictionary of fairseq in one line.

    fairseq raises a ``ValueError``, a ``RuntimeError`` or an ``Exception`` for it, without its name.
    """
    from fairseq.data import Dictionary

    wrap_once(Dictionary, "add_from_file", "wrong_dictionary", _add_from_dictionary)


def _add_from_dictionary(original, self, f):
    try:
        original(self, f)
    except OSError:
        raise
    except Exception:
        if not isinstance(f, str):  # the file that the outer call has opened
            raise
        raise UserError(
            f"{f}: is no dictionary of fairseq, in which each line is a symbol, a space and a number, and each symbol "
            "has one line, in UTF-8; give that of fairseq-preprocess, or of fb-fairseq preprocess-bytes"
        ) from None
