"""Chats for tests: what is asked, what a scripted engine says to it, and what comes out."""

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any

import trio
from scripted_engine import Script
from scripted_service import tokens_of

from hipfire.service.events import ChatEvent, Completed, TextDelta
from hipfire.service.request import ChatJob, Message

HELLO = "Hello, world!"


def hello(**fields: Any) -> Script:
    return Script(tokens=tokens_of(HELLO), **fields)


def a_job(text: str = "hi", *, model: str | None = None, **fields: Any) -> ChatJob:
    return ChatJob(model=model, messages=(Message(role="user", content=text),), **fields)


async def events_of(chat: AsyncGenerator[ChatEvent, None]) -> list[ChatEvent]:
    async with aclosing(chat):
        return [event async for event in chat]


def text_of(events: list[ChatEvent]) -> str:
    return "".join(event.text for event in events if isinstance(event, TextDelta))


def end_of(events: list[ChatEvent]) -> Completed:
    """How it went, which must be the last event and the only one of its kind."""
    (completed,) = (event for event in events if isinstance(event, Completed))
    assert completed is events[-1]
    return completed


async def until(condition: Callable[[], bool]) -> None:
    """Let the others run until something is so."""
    with trio.fail_after(60):
        while not condition():
            await trio.lowlevel.checkpoint()
