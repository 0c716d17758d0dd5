"""Tokenizers of subword-nmt's pieces give what subword-nmt and fairseq give, or are refused."""

import collections
import io
import pathlib
import random
import re
import string

import pytest

from fb_fairseq.errors import UserError

pytest.importorskip("transformers")
pytest.importorskip("subword_nmt")

from subword_nmt.apply_bpe import BPE  # noqa: E402
from subword_nmt.learn_bpe import learn_bpe  # noqa: E402
from transformers import AutoTokenizer  # noqa: E402

from fb_fairseq.pretrained.folders import read_symbols, symbol_of_piece  # noqa: E402
from fb_fairseq.pretrained.vocabulary import Vocabulary  # noqa: E402
from fb_fairseq.transformers import tokenizers  # noqa: E402
from fb_fairseq.transformers.tokenizers import SPECIAL, build_tokenizer  # noqa: E402

EOS = SPECIAL.index("</s>")
UNK = SPECIAL.index("<unk>")
VERSION = "#version: 0.2\n"
LIBRARY = pathlib.Path(string.__file__).parent


def words_of(path):
    return " ".join(re.findall(r"\w+|[^\w\s]", path.read_text(encoding="utf-8")))


def learned(text, merges, folder):
    """A file of codes, and the dictionary of the text in pieces, to which pieces that do not occur are added."""
    codes = io.StringIO()
    learn_bpe(io.StringIO(text), codes, merges, min_frequency=1)
    path = folder / "codes"
    path.write_text(codes.getvalue(), encoding="utf-8")
    counts = collections.Counter(BPE(io.StringIO(codes.getvalue())).process_line(text).split())
    symbols = [symbol for symbol, _ in counts.most_common()]
    for left, right in tokenizers.read_merges(str(path)):
        symbols += [symbol_of_piece(piece) for piece in (left, right, left + right)]
    return str(path), [*SPECIAL, *dict.fromkeys(symbols), "madeupword0000"]


def read_bpe(path):
    return BPE(io.StringIO(pathlib.Path(path).read_text(encoding="utf-8")))


def expected_ids(bpe, symbols, text):
    indices = {symbol: index for index, symbol in enumerate(symbols)}
    return [indices.get(piece, UNK) for piece in bpe.process_line(text).split()]


@pytest.mark.parametrize("merges", [10, 100, 1500])
def test_real_text(merges, tmp_path):
    """Code and comments. The tokenizer reads other files than those that the codes were learned from."""
    path, symbols = learned(words_of(LIBRARY / "argparse.py"), merges, tmp_path)
    bpe = read_bpe(path)
    tokenizer = build_tokenizer(symbols, path)
    tokenizer.save_pretrained(tmp_path)
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    for name in ("argparse.py", "textwrap.py", "stringprep.py"):
        text = words_of(LIBRARY / name)
        expected = expected_ids(bpe, symbols, text)
        for each in (tokenizer, loaded):
            assert each(text)["input_ids"] == [EOS] + expected
            pieces = " ".join(symbols[index] for index in expected) + " "
            assert each.decode(expected) == pieces.replace("@@ ", "").rstrip(), "as fairseq joins them"
        lines = Vocabulary(symbols, str(tmp_path)).decode([*expected, EOS, *expected])
        assert lines == "\n".join(2 * [pieces.replace("@@ ", "").rstrip()])
        if UNK not in expected:
            assert tokenizer.decode([EOS] + expected, skip_special_tokens=True) == text
    assert read_symbols(str(tmp_path)) == (symbols, True)


def made_up(generator, letters, words):
    """A text of so many words of random letters."""
    return " ".join("".join(generator.choices(letters, k=generator.randint(1, 12))) for _ in range(words))


def test_few_letters(tmp_path):
    """Repetitions, in which the order of merges matters; unknown characters; words of one letter."""
    generator = random.Random(0)
    for _ in range(40):
        letters = generator.choice(["ab", "aab", "abc", "é😀", "ab</w>@"[: generator.randint(3, 7)]])
        path, symbols = learned(made_up(generator, letters, 60), generator.randint(1, 60), tmp_path)
        bpe = read_bpe(path)
        tokenizer = build_tokenizer(symbols, path)
        for _ in range(60):
            text = made_up(generator, letters + "x☃<" * generator.randint(0, 1), 5)
            text = generator.choice(["", " ", "  "]) + text.replace(" ", generator.choice([" ", "   "]))
            assert tokenizer(text, add_special_tokens=False)["input_ids"] == expected_ids(bpe, symbols, text)


def test_any_white_space_separates_words_and_special_symbols_are_text(tmp_path):
    path, symbols = learned("low lower <unk> </s> @@ a@@", 3, tmp_path)
    tokenizer = build_tokenizer(symbols, path)
    bpe = read_bpe(path)
    assert tokenizer("low\tlower\n\u3000low")["input_ids"] == tokenizer("low lower low")["input_ids"]
    for text in ("<unk> </s>", "low</s>lower", "@@ a@@ a@@ low", "</w> a</w>b"):
        assert tokenizer(text)["input_ids"] == [EOS] + expected_ids(bpe, symbols, text)
    ids = tokenizer("low lower")["input_ids"]
    assert tokenizer.decode(ids) == "</s> low lower"
    assert tokenizer.decode([EOS, UNK, symbols.index("l@@"), UNK, EOS]) == "</s> <unk> l<unk> </s>"


LETTERS = ["a", "a@@", "b", "b@@", "ab@@", "ab", "aba"]


@pytest.mark.parametrize(
    "codes, symbols, message",
    [
        ("a b\n", LETTERS, r"must begin with #version: 0.2"),
        ("#version: 0.1\na b\n", LETTERS, r"must begin with #version: 0.2"),
        ("version 0.2\na b\n", LETTERS, r"must begin with #version: 0.2"),
        (VERSION + "a b 12\n", LETTERS, r":2: must be two pieces"),
        (VERSION + "a b\n", ["a@@", "b@@"], r"1 of its 3 pieces, such as 'ab', are missing from dict.txt"),
        (VERSION, ["<s>@@"], r"'<s>@@' and '<s>' are the same piece"),
    ],
)
def test_codes_that_tokenizers_cannot_express_are_refused(codes, symbols, message, tmp_path):
    path = tmp_path / "codes"
    path.write_text(codes)
    with pytest.raises(UserError, match=message) as raised:
        build_tokenizer([*SPECIAL, *symbols], str(path))
    assert "\n" not in str(raised.value) and str(path) in str(raised.value)
