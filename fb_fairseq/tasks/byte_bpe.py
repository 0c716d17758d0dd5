"""The byte codec as fairseq's ``--bpe byte_codec``."""

from fairseq.data.encoders import register_bpe

from fb_fairseq import byte_codec
from fb_fairseq.errors import UserError


@register_bpe("byte_codec")
class ByteCodec:
    """Text to byte symbols and back, for Python; bytes that are no UTF-8 come back as U+FFFD."""

    def __init__(self, *unused):
        pass

    def encode(self, text: str) -> str:
        return " ".join(byte_codec.encode(text.encode("utf-8", "surrogateescape")))

    def decode(self, symbols: str) -> str:
        return byte_codec.decode(symbols.split()).decode("utf-8", "replace")


class LineByteCodec(ByteCodec):
    """The same for commands that read and print a text a line: newlines and the like are written as escapes."""

    def encode(self, text: str) -> str:
        try:
            return " ".join(byte_codec.encode(byte_codec.unescape(text)))
        except ValueError as error:
            raise UserError(str(error)) from None

    def decode(self, symbols: str) -> str:
        return byte_codec.escape(byte_codec.decode(symbols.split()))
