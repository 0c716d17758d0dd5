"""Read values that are written as Python expressions, without running them as code.

fairseq calls ``eval`` on options such as ``--adam-betas "(0.9, 0.98)"`` and ``--encoder-layers "[(512, 3)] * 20"``,
also on those that a checkpoint holds.
"""

import ast
from typing import Any

from fb_fairseq.errors import UserError

MAX_LENGTH = 10_000  # characters of a text, and items of a list that is multiplied
SHOWN = 60  # characters of the text in an error
NUMBERS = (int, float)
SEQUENCES = (list, tuple)
CONSTANTS = (*NUMBERS, bool, str, type(None))


def parse_literal(text: Any) -> Any:
    """The value of an expression of numbers, quoted text, True, False, None, lists, tuples, sets, dictionaries, signs,
    ``+`` and ``*``.

    Raises:
        TypeError: the argument is no text (as ``eval`` raises).
        UserError: the text is anything else.
    """
    if not isinstance(text, str):
        raise TypeError("parse_literal() arg 1 must be a string")
    try:
        if len(text) > MAX_LENGTH:
            raise ValueError
        return _value(ast.parse(text.strip(), mode="eval").body)
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError, OverflowError):
        shown = text if len(text) <= SHOWN else text[:SHOWN] + "…"
        raise UserError(
            f"{shown!r} is code, or not a valid value; options such as --model-overrides, --adam-betas and "
            "--adaptive-softmax-cutoff, on the command line or in a checkpoint, must be numbers, quoted text, lists, "
            "tuples or dictionaries"
        ) from None


def _value(node: ast.AST) -> Any:
    if isinstance(node, ast.Constant) and isinstance(node.value, CONSTANTS):
        return node.value
    if isinstance(node, (ast.List, ast.Tuple, ast.Set)):
        kind = {ast.List: list, ast.Tuple: tuple, ast.Set: set}[type(node)]
        return kind(_value(item) for item in node.elts)
    if isinstance(node, ast.Dict):
        return {_value(key): _value(value) for key, value in zip(node.keys, node.values)}
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.UAdd)):
        value = _value(node.operand)
        return -value if isinstance(node.op, ast.USub) else +value
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Mult)):
        return _combine(node.op, _value(node.left), _value(node.right))
    raise ValueError


def _combine(op: ast.operator, left: Any, right: Any) -> Any:
    """``left + right`` or ``left * right``, of numbers or of sequences."""
    if isinstance(op, ast.Add):
        return left + right
    for count, other in ((left, right), (right, left)):
        is_too_long = isinstance(other, SEQUENCES) and len(other) * count > MAX_LENGTH
        if not isinstance(other, (*NUMBERS, *SEQUENCES)) or is_too_long:
            raise ValueError
    return left * right
