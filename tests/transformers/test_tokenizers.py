"""Tokenizers give fairseq's indices for any text, and come back from them, also when stock transformers loads them."""

import json
import random
import subprocess
import sys

import pytest

from fb_fairseq import byte_codec
from fb_fairseq.errors import UserError

pytest.importorskip("transformers")

from transformers import AutoTokenizer  # noqa: E402

from fb_fairseq.pretrained.folders import read_symbols  # noqa: E402
from fb_fairseq.transformers.tokenizers import SPECIAL, WHITE_SPACE, build_tokenizer  # noqa: E402

EOS = SPECIAL.index("</s>")
PAD = SPECIAL.index("<pad>")
BYTES = [*SPECIAL, *byte_codec.SYMBOLS]
WORDS = [*SPECIAL, "a", "the", "naïve", "😀", ",", "don't", "<x>", "A", "@@", "</w>", "Ġ", "madeupword0000"]
TEXTS = [
    "",
    " ",
    "plain text",
    " \t two  spaces,\r\n\n lines \f",
    "naïve café ☃ 😀 👩‍👩‍👧 e\u0301 \u212b ﬁ",  # a normaliser would change the last ones
    "</s> <s><pad> a<unk> x</s>y <unk>",
    "\0\x1c\x1d\x1e\x1f\x7f\x85\xa0\u2028\u3000\ufeff\uffff\U0010ffff",
    "Ġ Ċ <0x41> \\n don't , . ! 's",
]


def random_text(generator, length=60):
    """Characters of all lengths in UTF-8, white space, and special symbols."""

    def character():
        last = generator.choice([0x20, 0x80, 0x800, 0x10000, 0x110000]) - 1
        code = generator.randint(0, last)
        return chr(code) if not 0xD800 <= code < 0xE000 else "?"

    def part():
        return generator.choice([character, lambda: generator.choice(WHITE_SPACE), lambda: generator.choice(WORDS)])()

    return "".join(part() for _ in range(generator.randint(0, length)))


def texts(number):
    generator = random.Random(0)
    return TEXTS + [random_text(generator) for _ in range(number)]


def saved_and_loaded(tokenizer, folder):
    """The tokenizer as stock transformers loads it, beside the configuration of a model that it does not know."""
    tokenizer.save_pretrained(folder)
    (folder / "config.json").write_text(json.dumps({"model_type": "unknown_to_transformers"}))
    return AutoTokenizer.from_pretrained(folder)


@pytest.fixture(params=["built", "loaded"])
def storage(request, tmp_path):
    """Every test of an encoding also runs on a tokenizer that was saved and loaded."""
    return (lambda tokenizer: tokenizer) if request.param == "built" else lambda t: saved_and_loaded(t, tmp_path)


def test_bytes(storage):
    tokenizer = storage(build_tokenizer(BYTES))
    for text in texts(300):
        expected = [EOS] + [BYTES.index(symbol) for symbol in byte_codec.encode(text.encode())]
        assert tokenizer(text)["input_ids"] == expected
        assert tokenizer(text, add_special_tokens=False)["input_ids"] == expected[1:]
        assert tokenizer.decode(expected, skip_special_tokens=True) == text
        assert tokenizer.decode(expected) == "</s>" + text


def test_any_bytes_are_decoded():
    """Also those that are no UTF-8, as Python decodes them. Each byte has an index."""
    tokenizer = build_tokenizer(BYTES)
    generator = random.Random(0)
    random_bytes = [bytes(generator.choices(range(256), k=generator.randint(1, 40))) for _ in range(500)]
    cut = "😀 naïve ☃".encode()
    for data in [bytes([byte]) for byte in range(256)] + random_bytes + [cut[:end] for end in range(len(cut))]:
        assert tokenizer.decode([byte + len(SPECIAL) for byte in data]) == data.decode("utf-8", "replace")


def test_bytes_are_those_of_a_dictionary_of_preprocess_bytes():
    pytest.importorskip("fairseq")
    from fb_fairseq.commands.preprocess_bytes import byte_dictionary

    assert byte_dictionary().symbols == BYTES


def test_white_space_is_pythons():
    assert set(WHITE_SPACE) == {chr(code) for code in range(sys.maxunicode + 1) if chr(code).isspace()}


def split_words(text):
    words = text.replace("\n", " </s> ").split()
    return [WORDS.index(word) if word in WORDS else SPECIAL.index("<unk>") for word in words]


def test_words(storage):
    tokenizer = storage(build_tokenizer(WORDS))
    for text in texts(500):
        expected = split_words(text)
        assert tokenizer(text)["input_ids"] == [EOS] + expected
        assert tokenizer.decode(expected) == " ".join(WORDS[index] for index in expected)


def test_words_are_those_of_fairseq():
    pytest.importorskip("fairseq")
    from fairseq.data import Dictionary

    dictionary = Dictionary()
    for text in texts(100)[::2]:  # the words of the other half are unknown, mostly
        dictionary.encode_line(text, add_if_not_exist=True)
    dictionary.finalize(padding_factor=64)
    assert dictionary.symbols[-1].startswith("madeupword")
    tokenizer = build_tokenizer(dictionary.symbols)
    for text in texts(100) + ["madeupword0000 madeupword0001 madeupword"]:
        line = text.replace("\n", " </s> ")
        expected = dictionary.encode_line(line, add_if_not_exist=False, append_eos=False).tolist()
        assert tokenizer(text, add_special_tokens=False)["input_ids"] == expected
        assert tokenizer.decode(expected, skip_special_tokens=False).split() == [dictionary[i] for i in expected]


def test_large_dictionary(tmp_path):
    """Of more than 100,000 words, which transformers treats differently."""
    symbols = [*SPECIAL, *(f"word{index}" for index in range(110_000))]
    tokenizer = saved_and_loaded(build_tokenizer(symbols), tmp_path)
    assert tokenizer("word109999 word word0")["input_ids"] == [EOS, 110_003, 3, 4]


def test_batches_are_padded_on_the_left(storage):
    tokenizer = storage(build_tokenizer(BYTES))
    batch = tokenizer(["abc", "", "a"], padding=True, return_tensors="pt")
    a, b, c = (BYTES.index(letter) for letter in "abc")
    assert batch["input_ids"].tolist() == [[EOS, a, b, c], [PAD, PAD, PAD, EOS], [PAD, PAD, EOS, a]]
    assert batch["attention_mask"].tolist() == [[1, 1, 1, 1], [0, 0, 0, 1], [0, 0, 1, 1]]
    assert set(batch) == {"input_ids", "attention_mask"}, "a model's generate takes no others"
    assert tokenizer.batch_decode(batch["input_ids"], skip_special_tokens=True) == ["abc", "", "a"]


def test_special_tokens(storage):
    tokenizer = storage(build_tokenizer(WORDS))
    assert (tokenizer.bos_token, tokenizer.eos_token) == ("</s>", "</s>")
    assert (tokenizer.pad_token_id, tokenizer.eos_token_id) == (1, 2)
    assert tokenizer.model_max_length > 10**12 and len(tokenizer) == len(WORDS)
    assert tokenizer("a", "the")["input_ids"] == [EOS, 4, EOS, 5], "two documents"
    assert tokenizer.decode([0, 2, 4, 1, 3], skip_special_tokens=True) == "a <unk>", "as fairseq prints it"


def test_lines_of_words():
    """Each line ends with </s>, as fairseq-preprocess writes it; in a translation model, line ends are white space."""
    text = "a the\n\n the  b a\nnonsense"
    by_line = [EOS, *(index for line in text.split("\n") for index in [*split_words(line), EOS])]
    for written in (text, text.replace("\n", " </s> "), text.replace("\n", "\r\n")):
        assert build_tokenizer(WORDS)(written)["input_ids"] + [EOS] == by_line
    assert build_tokenizer(WORDS, after_text=True)("a\nthe")["input_ids"] == [4, 5, EOS]


@pytest.mark.parametrize("symbols", [BYTES, WORDS])
def test_dictionaries_of_folders(tmp_path, symbols):
    """Also where a user has added tokens or changed settings, and of earlier exports, whose <unk> was special."""
    tokenizer = build_tokenizer(symbols)
    tokenizer.backend_tokenizer.add_special_tokens(["<unk>"])
    tokenizer.add_tokens(["new"])
    tokenizer(["a", "the a"], padding=True, truncation=True, max_length=2)
    tokenizer.save_pretrained(tmp_path)
    assert read_symbols(str(tmp_path)) == (symbols, False)


PROGRAM = """
import sys
from transformers import AutoTokenizer
print(AutoTokenizer.from_pretrained(sys.argv[1])("</s> é")["input_ids"], "fb_fairseq" in sys.modules)
"""


@pytest.mark.on_ci
def test_stock_transformers_loads_the_folder(tmp_path):
    saved_and_loaded(build_tokenizer(BYTES), tmp_path)
    arguments = [sys.executable, "-c", PROGRAM, str(tmp_path)]
    done = subprocess.run(arguments, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    expected = [EOS, *(byte + len(SPECIAL) for byte in "</s> é".encode())]
    assert done.stdout.strip() == f"{expected} False", done.stderr


@pytest.mark.parametrize(
    "symbols, message",
    [
        (["<s>", "</s>", "<pad>", "<unk>"], "dict.txt: must begin with"),
        ([*SPECIAL, "a", "b", "a"], "dict.txt: 'a' occurs twice"),
    ],
)
def test_bad_dictionaries_are_refused(symbols, message):
    with pytest.raises(UserError, match=message) as raised:
        build_tokenizer(symbols)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("symbols", [[*SPECIAL, "a"], ["a", "<unk>"]])
def test_other_tokenizers_are_refused(tmp_path, symbols):
    from tokenizers import Tokenizer, models

    vocabulary = {symbol: index for index, symbol in enumerate(symbols)}
    Tokenizer(models.BPE(vocabulary, [], unk_token="<unk>")).save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(UserError, match="tokenizer.json: was not made from a fairseq dictionary"):
        read_symbols(str(tmp_path))
