"""Report mistakes with ``from_pretrained`` and its interface in one line."""

from fb_fairseq.errors import UserError
from fb_fairseq.patches.wrapping import wrap_once


def patch_hub() -> None:
    """Refuse a missing folder, and ``score()`` of translation models, to which fairseq gives no target.

    It fails with a TypeError about None, and with one about ``prev_output_tokens``.

    Affects: fairseq 0.12.2, fairseq-fixed 0.12.3.1.
    Remove when: a supported fairseq reports the first, and scores translations; none does yet.
    """
    from fairseq import file_utils
    from fairseq.hub_utils import GeneratorHubInterface

    wrap_once(file_utils, "load_archive_file", "hub", _find_folder)
    wrap_once(GeneratorHubInterface, "score", "hub", _score)


def _find_folder(original, archive_file):
    found = original(archive_file)
    if found is None:
        raise UserError(f"{archive_file}: no such folder; give that of a checkpoint or of its data")
    return found


def _score(original, self, *args, **kwargs):
    from fairseq.models import FairseqEncoderDecoderModel

    if isinstance(self.models[0], FairseqEncoderDecoderModel):
        raise UserError("score() is for language models; score translations with fairseq-generate --score-reference")
    return original(self, *args, **kwargs)
