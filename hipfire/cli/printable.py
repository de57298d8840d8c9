"""Text of others, made safe for a terminal: what a model writes must not move the cursor, nor set a title."""

# All control characters but the line feed and the tab: C0, DEL and C1.
_CONTROLS = dict.fromkeys([*range(0x20), *range(0x7F, 0xA0)], "\N{REPLACEMENT CHARACTER}")
del _CONTROLS[ord("\n")], _CONTROLS[ord("\t")]


def printable(text: str) -> str:
    """The text, with a replacement character for each control character."""
    return text.translate(_CONTROLS)
