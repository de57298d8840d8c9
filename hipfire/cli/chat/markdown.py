"""Markdown as a terminal shows it: rich's, with what models write in mind. Knows no stream."""

from collections.abc import Iterable

from markdown_it.token import Token
from rich.console import Console, ConsoleOptions, RenderResult
from rich.markdown import CodeBlock, Heading, Markdown
from rich.segment import Segment
from rich.syntax import Syntax

from hipfire.cli.chat.blocks import parser

# Colours of the terminal's own palette: they go with a light background and with a dark one.
_THEME = "ansi_dark"


class _Code(CodeBlock):
    """A code block without a margin and without a background, so that it can be copied."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        code = str(self.text).rstrip()
        yield Syntax(code, self.lexer_name, theme=_THEME, word_wrap=True, background_color="default")


class _Heading(Heading):
    """A heading at the left, however high."""

    LEVEL_ALIGN = dict.fromkeys(Heading.LEVEL_ALIGN, "left")


class AnswerMarkdown(Markdown):
    """Markdown of a model. Line ends are kept, HTML is shown as it is, and links have their address beside them."""

    elements = Markdown.elements | {"fence": _Code, "code_block": _Code, "heading_open": _Heading}

    def __init__(self, text: str) -> None:
        super().__init__("", hyperlinks=False)
        self.parsed = parser().parse(text)
        _keep_line_ends(self.parsed)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for number, segment in enumerate(super().__rich_console__(console, options)):
            # A list, a quotation or a table would come with an empty line above it, at the top too.
            if number or segment != Segment.line():
                yield segment


def _keep_line_ends(tokens: Iterable[Token]) -> None:
    for token in tokens:
        if token.type == "softbreak":
            token.type = "hardbreak"
        _keep_line_ends(token.children or ())
