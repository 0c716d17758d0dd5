"""``--bpe byte_codec``: ``fb_fairseq.byte_codec`` as a codec of fairseq, for texts and for lines of a terminal."""

from fairseq.data.encoders import register_bpe

from fb_fairseq import byte_codec
from fb_fairseq.errors import UserError


@register_bpe("byte_codec")
class ByteCodec:
    """Converts text to byte symbols and back, for use from Python. Invalid UTF-8 is decoded as U+FFFD."""

    def __init__(self, *unused):
        pass  # fairseq passes the configuration of the codec, which has none

    def encode(self, text: str) -> str:
        """The symbols of a text, separated by spaces."""
        return " ".join(byte_codec.encode(text.encode("utf-8", "surrogateescape")))

    def decode(self, symbols: str) -> str:
        """The text of symbols that are separated by spaces."""
        return byte_codec.decode(symbols.split()).decode("utf-8", "replace")


class LineByteCodec(ByteCodec):
    """Byte codec of commands that read and print one text per line: line breaks and the like are written as escapes."""

    def encode(self, text: str) -> str:
        """The symbols of a text with escapes."""
        try:
            return " ".join(byte_codec.encode(byte_codec.unescape(text)))
        except ValueError as error:
            raise UserError(f"prompt: {error}") from None

    def decode(self, symbols: str) -> str:
        """The text of symbols, on one line."""
        return byte_codec.escape(byte_codec.decode(symbols.split()))
