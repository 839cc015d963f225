"""Text that came from data, made safe to show: what cannot be seen, or would steer a terminal, is written out."""

from __future__ import annotations

import re

# Control characters (C0, DEL, C1); marks that turn the direction of writing or cannot be seen; line and paragraph
# separators; halves of surrogate pairs; invisible tags. The joiners U+200C and U+200D stay: some scripts need them.
HIDDEN = re.compile(
    "[\x00-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f"
    "\u3164\ud800-\udfff\ufe00-\ufe0d\ufeff\uffa0\ufff9-\uffff\U000e0000-\U000e0fff]"
)
LONGEST_REASON = 240


def printable(text: object, *, lines: bool = False) -> str:
    r"""Return text in which every hidden character is written as its escape, such as ``\x1b`` or ``\u202e``.

    Args:
        text: Anything; its ``str`` is taken, or the name of its type if it has none.
        lines: Keep line feeds, for messages of several lines.

    Returns:
        Text that no terminal, page or log can be steered by. What it shows is what it holds.

    Example:
        >>> print(printable("a\x1b[31mb\u202ec"))
        a\x1b[31mb\u202ec
    """
    return HIDDEN.sub(lambda found: found[0] if lines and found[0] == "\n" else _escape(found[0]), _written(text))


def brief(error: BaseException) -> str:
    """Return what an error of someone else's code says: its first line, printable and not too long, or its name."""
    said = printable(str(error).strip().partition("\n")[0]).strip(" .")
    said = said if len(said) <= LONGEST_REASON else said[: LONGEST_REASON - 3] + "..."
    return said or type(error).__name__


def _written(value: object) -> str:
    try:
        return str(value)
    except ValueError:  # an integer of more digits than Python writes out
        return f"<{type(value).__name__}>"


def _escape(character: str) -> str:
    code = ord(character)
    if character in "\t\n\r":
        return {"\t": "\\t", "\n": "\\n", "\r": "\\r"}[character]
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
