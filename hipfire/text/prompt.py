"""A conversation to the token ids of its prompt, such that only the template's own text becomes control tokens.

Looking for control tokens in the rendered text would find those that a client wrote into a message, a tool's name or
a tool's result. So the texts that the template itself writes are marked before it is compiled: where one spells a
control token, it writes that token's id between two marks instead. What is rendered then has ids where the template
wrote control tokens, and nothing that a client sends looks like one, whatever the template does with it: cuts it up,
trims it, changes its case, puts it next to its own text.

Some templates put a role into a control token (`"<|" + message.role + "|>"`). So where a template writes a message's
role, the seams have a third mark; and if what lies between them is indeed the name of a role and the whole spells a
control token, it is one.

Marks are Unicode noncharacters. A client's text may have those too: they are exchanged for others while rendering.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from hipfire.errors import TemplateError
from hipfire.text.literals import LiteralMatcher
from hipfire.text.template import ChatTemplate
from hipfire.text.template_literals import Rewrite
from hipfire.text.tokenizer import Tokenizer

_OPEN, _CLOSE, _SEAM = "\ufdd0", "\ufdd1", "\ufdd2"
_MARKS = (_OPEN, _CLOSE, _SEAM)
_SPARE = tuple(map(chr, range(0xFDD3, 0xFDF0)))
_MARKED = re.compile(f"[{''.join(_MARKS)}]")
_NO_MARKS = str.maketrans(dict.fromkeys(_MARKS, ""))
_CONTROL = re.compile(f"{_OPEN}([0-9]+){_CLOSE}")

_TAIL_TOKENS = 32

_ROLES = ("system", "developer", "user", "assistant", "tool", "function")


def encode_chat(
    template: ChatTemplate,
    tokenizer: Tokenizer,
    messages: Sequence[Mapping[str, object]],
    /,
    *,
    tools: Sequence[Mapping[str, object]] | None = None,
    **kwargs: object,
) -> list[int]:
    """The prompt of a conversation. `kwargs` are those of `ChatTemplate.render`.

    It begins with BOS exactly once where the model wants one, whether or not the template writes it.
    Raises TemplateError where the template refuses the conversation, fails, or does too much.
    """
    encoder = template.prepared_for(tokenizer, ChatEncoder)
    return encoder.encode(messages, tools, kwargs)


def prompt_tail(ids: Sequence[int], tokenizer: Tokenizer, shown: Mapping[int, bytes]) -> str:
    """The text that a prompt ends with. `shown`: the control tokens that are to be seen in it."""
    tail = ids[-_TAIL_TOKENS:]
    return b"".join(shown.get(token) or tokenizer.token_bytes(token) for token in tail).decode(errors="replace")


class ChatEncoder:
    """Encodes conversations with one template and one tokenizer. Making one compiles the template again."""

    def __init__(self, template: ChatTemplate, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._control = tokenizer.control_texts
        self._control_ids = frozenset(self._control.values())
        self._matcher = LiteralMatcher(self._control)
        cut = [control.partition(role) for control in self._control for role in _ROLES if role in control]
        before, role, after = (
            "|".join(map(re.escape, _longest_first(texts)))
            for texts in ((parts[0] for parts in cut), _ROLES, (parts[2] for parts in cut))
        )
        self._with_role = re.compile(f"({before}){_SEAM}({role}){_SEAM}({after})")
        self._template = template.rewritten(Rewrite(text=self._mark, role_seam=_SEAM if cut else ""))

    def encode(
        self,
        messages: Sequence[Mapping[str, object]],
        tools: Sequence[Mapping[str, object]] | None,
        variables: Mapping[str, Any],
    ) -> list[int]:
        exchange = _exchange((messages, tools, variables))
        if exchange:
            messages, tools, variables = _translated([messages, tools, variables], exchange)
        rendered = self._template.render(messages, tools=tools, **variables)
        back = {ord(spare): chr(mark) for mark, spare in exchange.items()}
        ids: list[int] = []
        for part in self._parts(rendered):
            ids += [part] if isinstance(part, int) else self._tokenizer.encode(part.translate(back))
        bos_id = self._tokenizer.bos_id
        if self._tokenizer.adds_bos and bos_id is not None and ids[:1] != [bos_id]:
            ids.insert(0, bos_id)
        return ids

    def _mark(self, text: str) -> str:
        """A text that the template writes, with the control tokens in it marked."""
        parts = self._matcher.split(text.translate(_NO_MARKS))
        return "".join(f"{_OPEN}{part}{_CLOSE}" if isinstance(part, int) else part for part in parts)

    def _parts(self, rendered: str) -> Iterator[int | str]:
        """The control tokens and the ordinary text of a rendered prompt, in order."""
        text = self._with_role.sub(self._mark_with_role, rendered).replace(_SEAM, "")
        for index, part in enumerate(_CONTROL.split(text)):
            if index % 2 == 0:
                if part:
                    yield part
            # A template could write the marks by other means, though not a client.
            elif int(part) in self._control_ids:
                yield int(part)

    def _mark_with_role(self, match: re.Match[str]) -> str:
        token = self._control.get("".join(match.groups()))
        return match.group() if token is None else f"{_OPEN}{token}{_CLOSE}"


def _longest_first(texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(set(texts), key=len, reverse=True))


def _exchange(sent: object) -> dict[int, str]:
    """What to put for each mark that occurs in what a client sent: noncharacters that do not. Usually nothing."""
    strings = list(_strings(sent))
    if not any(map(_MARKED.search, strings)):
        return {}
    spare = [character for character in _SPARE if not any(character in string for string in strings)]
    if len(spare) < len(_MARKS):
        raise TemplateError("the conversation uses nearly all of Unicode's noncharacters U+FDD0 to U+FDEF")
    return {ord(mark): character for mark, character in zip(_MARKS, spare, strict=False)}


def _strings(value: object) -> Iterator[str]:
    pending = [value]
    while pending:
        item = pending.pop()
        if isinstance(item, str):
            yield item
        elif isinstance(item, Mapping):
            pending.extend(item.keys())
            pending.extend(item.values())
        elif isinstance(item, list | tuple):
            pending.extend(item)


def _translated(value: Any, exchange: Mapping[int, str]) -> Any:
    """`value` with the characters exchanged in every string. Raises TemplateError where it is nested too deep."""
    try:
        if isinstance(value, str):
            return value.translate(exchange)
        if isinstance(value, Mapping):
            return {_translated(key, exchange): _translated(item, exchange) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [_translated(item, exchange) for item in value]
    except RecursionError:
        raise TemplateError("the conversation is nested too deep") from None
    return value
