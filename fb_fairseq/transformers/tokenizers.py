"""fairseq's dictionaries as tokenizers of transformers, with the same indices.

There are three kinds: of bytes (``fb_fairseq.byte_codec``), of words separated by white space, and of subword-nmt's
pieces (``--bpe subword_nmt``). Each is a standard ``tokenizer.json``: ``AutoTokenizer`` loads it without this package.

As in training, a text begins with ``</s>``, the ``bos_token``. Within a text, special symbols are read as fairseq reads
them: in a model of bytes ``</s>`` is four bytes, in a model of words it is the symbol if it stands alone. Line ends in
a language model of words are ``</s>``, as fairseq-preprocess writes them, unless it was trained with ``--omit-eos``;
those of subwords are white space.
"""

from collections import Counter
from collections.abc import Sequence

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from fb_fairseq import byte_codec
from fb_fairseq.errors import UserError
from fb_fairseq.files import open_text
from fb_fairseq.symbols import END_OF_WORD, EOS, PAD, SEPARATOR, SPECIAL, UNK

Merge = tuple[str, str]
VERSION = "#version:"
END, UNKNOWN = SPECIAL[EOS], SPECIAL[UNK]
# White space of Python, and so of fairseq. Rust, and so WhitespaceSplit, has fewer characters.
WHITE_SPACE = "\t\n\v\f\r\x1c\x1d\x1e\x1f \x85\xa0\u1680" + "".join(map(chr, range(0x2000, 0x200B)))
WHITE_SPACE += "\u2028\u2029\u202f\u205f\u3000"


def read_merges(path: str) -> list[Merge]:
    """The merges of a file of codes, in the order in which they were learned: each piece is made before it is used.
    (So it makes no difference that subword-nmt merges all occurrences of a pair before it looks at pairs with the new
    piece, while tokenizers looks at these after every occurrence.)
    """
    with open_text(path) as file:
        lines = file.read().rstrip("\n").split("\n")
    if not lines[0].startswith(VERSION) or lines[0].split()[-1] != "0.2":
        raise UserError(f"{path}: must begin with {VERSION} 0.2; learn the codes with subword-nmt 0.2 or later")
    merges: dict[Merge, None] = {}  # the first of several equal ones counts
    for number, line in enumerate(lines[1:], start=2):
        merge = tuple(line.strip("\r\n ").split(" "))
        if len(merge) != 2 or not all(merge):
            raise UserError(f"{path}:{number}: must be two pieces separated by a space; give subword-nmt's codes")
        merges[merge] = None
    return list(merges)


def build_tokenizer(
    symbols: Sequence[str], bpe_codes: str | None = None, after_text: bool = False, line_ends: bool = True
) -> PreTrainedTokenizerFast:
    """The tokenizer of a model.

    - Of the byte codec's symbols: a text becomes its bytes in UTF-8.
    - Otherwise, without ``bpe_codes``: the words of a text as fairseq reads them. Unknown words become ``<unk>``.
    - With ``bpe_codes``: the pieces into which ``subword-nmt apply-bpe`` splits the words, without a vocabulary filter
      and glossaries. Any white space separates words. (For subword-nmt only a space does.)

    Args:
        symbols: fairseq's dictionary, in the order of the indices: ``<s>``, ``<pad>``, ``</s>``, ``<unk>`` first.
        bpe_codes: file of subword-nmt's codes, if the model reads them.
        after_text: put ``</s>`` after a text, as translation models expect it, and padding at the end; otherwise both
            are at the beginning.
        line_ends: read line ends between words as ``</s>``; not with ``after_text``.
    """
    symbols = list(symbols)
    if symbols[: len(SPECIAL)] != SPECIAL:
        raise UserError(f"dict.txt: must begin with the symbols {' '.join(SPECIAL)}, but begins with {symbols[:4]}")
    for symbol, times in Counter(symbols).items():
        if times > 1:
            raise UserError(f"dict.txt: {symbol!r} occurs twice, which a tokenizer cannot express; remove one of them")
    if bpe_codes is not None:
        backend = _subwords(symbols, read_merges(bpe_codes), bpe_codes)
    else:
        with_lines = line_ends and not after_text
        backend = _bytes() if symbols[len(SPECIAL) :] == byte_codec.SYMBOLS else _words(symbols, with_lines)
    text = f"$A {END}" if after_text else f"{END} $A"
    backend.post_processor = processors.TemplateProcessing(
        single=text,
        pair=f"{text} {text.replace('$A', '$B')}",
        special_tokens=[(END, EOS)],
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        bos_token=END,
        eos_token=END,
        pad_token=SPECIAL[PAD],
        padding_side="right" if after_text else "left",
        split_special_tokens=True,
        clean_up_tokenization_spaces=False,
        model_input_names=["input_ids", "attention_mask"],
    )


def _finish(backend: Tokenizer) -> Tokenizer:
    """Add the special symbols, without ``<unk>``: that is a word of a text, which ``skip_special_tokens`` leaves there,
    as fairseq prints it.
    """
    backend.add_special_tokens([AddedToken(symbol, normalized=False) for symbol in SPECIAL if symbol != UNKNOWN])
    return backend


def _bytes() -> Tokenizer:
    """Bytes. In tokenizer.json they have the names that GPT-2 gave them; only with these, broken UTF-8 is decoded."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = sorted(set(range(256)) - set(shown))
    names = {byte: chr(byte) for byte in shown}
    names.update((byte, chr(256 + i)) for i, byte in enumerate(hidden))
    in_order = [*SPECIAL, *(names[byte] for byte in range(256))]
    vocabulary = {name: index for index, name in enumerate(in_order)}
    backend = Tokenizer(models.BPE(vocab=vocabulary, merges=[], unk_token=UNKNOWN))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    return _finish(backend)


def _between_words() -> pre_tokenizers.PreTokenizer:
    """The split of a line into words."""
    return pre_tokenizers.Split(Regex(f"[{WHITE_SPACE}]+"), behavior="removed")


def _words(symbols: list[str], with_lines: bool) -> Tokenizer:
    """Words. Without a decoder, they are joined with spaces. ``with_lines``: read line ends as ``</s>``."""
    backend = Tokenizer(models.WordLevel({symbol: index for index, symbol in enumerate(symbols)}, unk_token=UNKNOWN))
    if with_lines:
        backend.normalizer = normalizers.Replace("\n", f" {END} ")
    backend.pre_tokenizer = _between_words()
    return _finish(backend)


def _name(symbol: str) -> str:
    """The name of a dictionary's symbol in codes: ``th`` for ``th@@``, ``th</w>`` for ``th``."""
    if symbol in SPECIAL:
        return symbol
    if symbol.endswith(SEPARATOR) and symbol != SEPARATOR:  # @@ alone is a word
        return symbol[: -len(SEPARATOR)]
    return symbol + END_OF_WORD


def _subwords(symbols: list[str], merges: list[Merge], path: str) -> Tokenizer:
    """Pieces of words. Those that end a word have ``</w>`` at the end of their names."""
    vocabulary: dict[str, int] = {}
    for index, symbol in enumerate(symbols):
        if vocabulary.setdefault(_name(symbol), index) != index:
            other = symbols[vocabulary[_name(symbol)]]
            raise UserError(f"dict.txt: {symbol!r} and {other!r} are the same piece in {path}; remove one of them")
    pieces = {piece for left, right in merges for piece in (left, right, left + right)}
    missing = sorted(pieces - vocabulary.keys())
    if missing:
        raise UserError(
            f"{path}: {len(missing)} of its {len(pieces)} pieces, such as {missing[0]!r}, are missing from "
            "dict.txt or are special symbols there, and a tokenizer cannot read them as <unk>; export without the "
            "codes, and split texts with subword-nmt apply-bpe"
        )
    backend = Tokenizer(models.BPE(vocab=vocabulary, merges=merges, unk_token=UNKNOWN, end_of_word_suffix=END_OF_WORD))
    backend.pre_tokenizer = _between_words()
    backend.decoder = decoders.Sequence(
        [
            decoders.Replace(Regex(f"{END_OF_WORD}$"), " "),
            *(decoders.Replace(Regex(f"^{symbol}$"), f"{symbol} ") for symbol in SPECIAL),
            decoders.Fuse(),
            decoders.Strip(" ", 0, 1),
        ]
    )
    return _finish(backend)
