"""Texts as tokens and back: bytes, and words."""

import pytest
from fairseq.data import Dictionary

from fb_fairseq import byte_codec
from fb_fairseq.commands.preprocess_bytes import byte_dictionary
from fb_fairseq.errors import UserError
from fb_fairseq.pretrained.vocabulary import Vocabulary
from fb_fairseq.symbols import EOS, SPECIAL, UNK

BYTES = Vocabulary(byte_dictionary().symbols)
FIRST, SECOND = BYTES.encode("é")
(NEWLINE,) = BYTES.encode("\n")


def test_bytes_there_and_back():
    """Also of what looks like a symbol; half a character is replaced."""
    tokens = BYTES.encode("é\n </s>")
    assert BYTES.of_bytes and BYTES.unit == "byte" and len(tokens) == 2 + 2 + 4
    assert BYTES.decode(tokens) == "é\n </s>" and BYTES.decode([FIRST]) == "\ufffd"


def test_a_byte_has_a_label():
    assert list(map(BYTES.label, BYTES.encode("é\n <"))) == [r"\xC3", r"\xA9", "\u21b5", "\u2423", "<"]
    assert [BYTES.ends_line(token) for token in (FIRST, SECOND, NEWLINE)] == [False, False, True]


def test_labels_show_a_character_at_its_first_byte():
    assert BYTES.labels([EOS, FIRST, SECOND, NEWLINE]) == ["</s>", "é", "·", "\u21b5"]
    assert BYTES.labels([EOS, SECOND, NEWLINE]) == ["</s>", r"\xA9", "\u21b5"], "no character"
    assert BYTES.labels([EOS, *BYTES.encode("да中🙂")]) == ["</s>", *"д·а·中··🙂···"]


@pytest.mark.parametrize(
    "before,token,label",
    [
        ([], NEWLINE, "\u21b5"),
        ([], EOS, "</s>"),
        ([FIRST], SECOND, "é"),
        ([SECOND], FIRST, r"\xC3"),
        (BYTES.encode("中中🙂")[:-1], BYTES.encode("🙂")[-1], "🙂"),
    ],
)
def test_the_next_label_is_the_character_that_a_byte_completes(before, token, label):
    assert BYTES.next_label([EOS, *before], token) == label


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
