"""Names that mean something to a terminal or to a format they are written in, and what may stand there of them."""

from __future__ import annotations

from hypothesis import strategies as st

FRAGMENTS = (
    *("\n", "\r\n", "\n\n", "\t", "\x85", "\u2028", "\u2029", "\x00", "\x07", "\x0b", "\x1c", "\x7f", "\ufeff"),
    *("\ufffe", "\uffff"),
    *("\x1b[31m", "\x1b]0;title\x07", "\x1bc", "\x9b2J", "\u202e", "\u202a", "\u2066", "\u2069", "\u200f", "\ue000"),
    *("\udcff", "\ud83d", "\n---\nlicense: x\n---\n", "license: x", "'", '"', ": ", "- ", "!!python/object:x"),
    *("|", " | ", "`", "```", "``x`", "**", "*", "_", "__", "_x_", "a_b", "~", "~~", "#", "# ", "![x](y)", "[x](y)"),
    *("<", ">", "&", "&amp;", "</script>", "<script>alert(1)</script>", "<!--", "-->", "]]>", "</td></tr>", "{{ 1 }}"),
    *("\\", "\\\\", "\\|", "\\input{/etc/hosts}", "\\end{tabular}", "$", "$$", "$\\frac{$", "\\$", "%", "^"),
    *("[red]", "[/]", "[/red]", "[link=file:///x]", "[", "]", ":smile:", "\N{GRINNING FACE}", "é", "文", "x", "1", " "),
    *("y" * 10_000, "👩\u200d🔬", "%s", "{0}", "=1+1", "@x", "&a", "*a", "1.", "---", "===", "{", "}", "{}"),
)  # fmt: skip

#: Names of one to three fragments.
NAMES = st.lists(st.sampled_from(FRAGMENTS), min_size=1, max_size=3).map("".join)

_RANGES = ((0, 0x20), (0x7F, 0xA0), (0x200E, 0x2010), (0x2028, 0x202F), (0x2066, 0x206A), (0xD800, 0xE000))
CONTROLS = frozenset(chr(code) for start, end in _RANGES for code in range(start, end)) | {*"\ufeff\ufffe\uffff"}


def controls(text: str, allowed: str = "\n") -> set[str]:
    """The characters of a text that control a terminal, turn the direction of writing or cannot be encoded."""
    return (CONTROLS & set(text)) - set(allowed)
