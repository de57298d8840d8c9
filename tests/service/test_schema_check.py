import json
from typing import Any

import pytest
import trio
from chats import a_job
from trio.testing import MockClock

from hipfire.errors import InvalidRequest, ServerBusy, Unsupported
from hipfire.service.request import AnswerFormat, Function
from hipfire.service.schema_check import SchemaCheck, Verdict, compile_apart

OBJECT: dict[str, Any] = {"type": "object", "properties": {"a": {"type": "string"}}}


class Compiler:
    """Answers what it was told to, and remembers what it was asked."""

    def __init__(self, *findings: dict[str, Any], dies: bool = False) -> None:
        self.asked: list[list[list[str]]] = []
        self._findings = findings
        self._dies = dies

    async def __call__(self, asked: bytes) -> bytes | None:
        await trio.lowlevel.checkpoint()
        self.asked.append(json.loads(asked))
        return None if self._dies else json.dumps(self._findings).encode()


FINE, LENIENT, BAD = {"chosen": 0, "error": None}, {"chosen": 1, "error": "why"}, {"chosen": None, "error": "why"}


def a_tool(name: str, **fields: Any) -> Function:
    return Function(name=name, parameters=OBJECT, document={}, path=f"tools[{name}]", **fields)


async def test_free_text_asks_for_no_check() -> None:
    compiler = Compiler()
    assert await SchemaCheck(compiler).check(a_job(tools=(a_tool("f"),))) == Verdict()
    assert compiler.asked == []


@pytest.mark.parametrize(
    ("fields", "n_asked"),
    [
        ({"answer_format": AnswerFormat(schema=OBJECT)}, [1]),
        ({"answer_format": AnswerFormat(schema=OBJECT, is_strict=False)}, [2]),
        (
            {"answer_format": AnswerFormat(schema=OBJECT), "tools": (a_tool("f"), a_tool("g", is_strict=True))},
            [1, 2, 1],
        ),
        ({"tools": (a_tool("f"), a_tool("g")), "must_call": ("f", "g")}, [2, 2]),
        ({"tools": (a_tool("f"), a_tool("g", is_strict=True)), "must_call": ("g",)}, [1]),
        ({"answer_format": AnswerFormat(schema=OBJECT), "tools": (a_tool("f"),), "must_call": ("f",)}, [2]),
    ],
)
async def test_every_schema_that_may_be_kept_to_is_checked(fields: dict[str, Any], n_asked: list[int]) -> None:
    compiler = Compiler(*[FINE] * len(n_asked))
    assert await SchemaCheck(compiler).check(a_job(**fields)) == Verdict()
    assert [len(grammars) for grammars in compiler.asked[0]] == n_asked


async def test_a_schema_is_compiled_once() -> None:
    compiler = Compiler(FINE)
    check = SchemaCheck(compiler)
    for _ in range(3):
        await check.check(a_job(answer_format=AnswerFormat(schema=OBJECT)))
    assert len(compiler.asked) == 1
    await check.check(a_job(answer_format=AnswerFormat(schema={**OBJECT, "maxProperties": 1})))
    assert len(compiler.asked) == 2


async def test_what_cannot_be_heeded_is_told() -> None:
    tools = (a_tool("f"), a_tool("g"))
    verdict = await SchemaCheck(Compiler(FINE, LENIENT)).check(a_job(tools=tools, must_call=("f", "g")))
    assert verdict == Verdict(is_lenient=True, warnings=("tools[g]: not all of it is kept to: why",))


async def test_what_cannot_be_kept_to_is_refused() -> None:
    with pytest.raises(Unsupported, match="why") as caught:
        await SchemaCheck(Compiler(FINE, BAD)).check(a_job(tools=(a_tool("f"), a_tool("g")), must_call=("f", "g")))
    assert caught.value.param == "tools[g]"


async def test_what_the_compiler_dies_of_is_refused_and_not_tried_again() -> None:
    compiler = Compiler(dies=True)
    check = SchemaCheck(compiler)
    for _ in range(2):
        with pytest.raises(InvalidRequest, match="too complex") as caught:
            await check.check(a_job(answer_format=AnswerFormat(schema=OBJECT, path="here")))
        assert caught.value.param == "here"
    assert len(compiler.asked) == 1


async def test_what_is_too_large_is_not_even_compiled() -> None:
    compiler = Compiler()
    with pytest.raises(InvalidRequest, match="minItems"):
        await SchemaCheck(compiler).check(a_job(answer_format=AnswerFormat(schema={"minItems": 10**9})))
    assert compiler.asked == []


async def test_a_machine_without_time_for_it_says_so(autojump_clock: MockClock) -> None:
    n_running = most = 0

    async def never(asked: bytes) -> bytes | None:
        nonlocal n_running, most
        n_running += 1
        most = max(most, n_running)
        try:
            await trio.sleep_forever()
        finally:
            n_running -= 1

    check = SchemaCheck(never)

    async def ask(least: int) -> None:
        with pytest.raises(ServerBusy):
            await check.check(a_job(answer_format=AnswerFormat(schema={"minItems": least})))

    async with trio.open_nursery() as nursery:
        for least in range(5):
            nursery.start_soon(ask, least)
    assert (n_running, most) == (0, 2)


async def test_the_real_compiler() -> None:
    check = SchemaCheck()
    assert await check.check(a_job(answer_format=AnswerFormat(schema=OBJECT))) == Verdict()
    unique = {"type": "array", "uniqueItems": True}
    lenient = await check.check(a_job(answer_format=AnswerFormat(schema=unique, is_strict=False)))
    assert lenient.is_lenient
    assert "uniqueItems" in lenient.warnings[0]
    with pytest.raises(Unsupported, match="uniqueItems"):
        await check.check(a_job(answer_format=AnswerFormat(schema=unique)))


async def test_a_compiler_that_dies_or_is_cancelled_leaves_nothing() -> None:
    assert await compile_apart(b"this is no JSON") is None
    with trio.move_on_after(0.0) as scope:
        await compile_apart(b"[]")
    assert scope.cancelled_caught
