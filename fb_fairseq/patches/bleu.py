"""BLEU of texts without words, in fairseq-generate and fairseq-score."""

from fb_fairseq.patches.wrapping import wrap_once


def patch_empty_texts() -> None:
    """Score texts without words. fairseq's C++ for BLEU reads beyond an empty tensor and crashes, and a ``</s>`` that
    stands alone counts as a word, and even as a right one.
    """
    from fairseq.scoring.bleu import Scorer

    wrap_once(Scorer, "add", "empty_texts", _add_to_bleu)
    wrap_once(Scorer, "score", "empty_texts", _bleu)
    wrap_once(Scorer, "result_string", "empty_texts", _result_of_bleu)


def _add_to_bleu(original, self, ref, pred):
    ref_words, words = (int(((tokens != self.eos) & (tokens != self.pad)).sum()) for tokens in (ref, pred))
    if ref_words and words:
        original(self, ref, pred)
        return
    self.stat.reflen += ref_words
    self.stat.predlen += words
    self.stat.count1 += words
    self.stat.count2 += max(0, words - 1)
    self.stat.count3 += max(0, words - 2)
    self.stat.count4 += max(0, words - 3)


def _bleu(original, self, order: int = 4):
    return original(self, order) if self.stat.predlen else 0.0


def _result_of_bleu(original, self, order: int = 4):
    if self.stat.reflen and self.stat.predlen:
        return original(self, order)
    return f"BLEU{order} = 0.00 (syslen={self.stat.predlen}, reflen={self.stat.reflen})"  # no ratio
