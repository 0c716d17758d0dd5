"""Texts as tokens and back: bytes, and words."""

import pytest
from fairseq.data import Dictionary

from fb_fairseq import byte_codec
from fb_fairseq.commands.preprocess_bytes import byte_dictionary
from fb_fairseq.errors import UserError
from fb_fairseq.pretrained.vocabulary import Vocabulary
from fb_fairseq.symbols import EOS, SPECIAL, UNK


def test_bytes_as_text():
    vocabulary = Vocabulary(byte_dictionary().symbols)
    tokens = vocabulary.encode("é\n </s>")
    assert vocabulary.of_bytes and vocabulary.unit == "byte" and len(tokens) == 2 + 2 + 4
    assert vocabulary.decode(tokens) == "é\n </s>" and vocabulary.decode(tokens[:1]) == "\ufffd"
    assert list(map(vocabulary.label, tokens[:5])) == [r"\xC3", r"\xA9", "\u21b5", "\u2423", "<"]
    assert vocabulary.labels([EOS, *tokens[:5]]) == ["</s>", "é", "·", "\u21b5", "\u2423", "<"]
    assert vocabulary.labels([EOS, *tokens[1:3]]) == ["</s>", r"\xA9", "\u21b5"]
    assert vocabulary.labels([EOS, *vocabulary.encode("да中🙂")]) == ["</s>", *"д·а·中··🙂···"]
    assert vocabulary.next_label([EOS, *tokens[:1]], tokens[1]) == "é"
    assert vocabulary.next_label([EOS, *tokens[1:2]], tokens[0]) == r"\xC3"
    assert vocabulary.next_label([EOS, *vocabulary.encode("中中🙂")[:-1]], vocabulary.encode("🙂")[-1]) == "🙂"
    assert vocabulary.next_label([EOS], tokens[2]) == "\u21b5" and vocabulary.next_label([EOS], EOS) == "</s>"
    assert [vocabulary.ends_line(token) for token in tokens[:4]] == [False, False, True, False]


def test_words_as_text():
    """A line break is </s>, and unknown words are <unk>."""
    words = Dictionary()
    cat = words.add_symbol("cat")
    vocabulary = Vocabulary(words.symbols)
    assert vocabulary.encode(" cat  dog\n\ncat") == [cat, UNK, EOS, EOS, cat] and vocabulary.unit == "token"
    assert vocabulary.decode([cat, UNK, EOS, cat]) == "cat <unk>\ncat"
    assert vocabulary.label(EOS) == "\u21b5" and vocabulary.ends_line(EOS) and not vocabulary.ends_line(cat)
    assert Vocabulary(words.symbols, line_ends=False).encode("cat\ncat") == [cat, cat]


def test_characters_are_printed_whole():
    """Two bytes of a character are printed with the second; what is no UTF-8 is replaced."""
    vocabulary = Vocabulary([*SPECIAL, *byte_codec.SYMBOLS])
    text = vocabulary.decoder()
    assert [text(token) for token in vocabulary.encode("é!".encode() + b"\xff.")] == ["", "é", "!", "\ufffd", "."]


def test_a_prompt_of_words():
    vocabulary = Vocabulary([*SPECIAL, "the", "cat"])
    words = [4, 5]
    assert vocabulary.encode_prompt(" the  cat ") == words
    assert "".join(map(vocabulary.decoder(), [*words, EOS])) == "the cat \n"
    with pytest.raises(UserError, match="--prompt: 'dog' is not in the dictionary"):
        vocabulary.encode_prompt("the dog")
