"""openai-python, as people use it: see test_clients.py for what each case must report."""

import json
from collections.abc import Mapping
from typing import Any

from cases import ANSWER, OBJECT_QUESTION, TOOL, TOOLS_QUESTION, main, weather
from openai import OpenAI
from pydantic import BaseModel

MESSAGES: list[Any] = [{"role": "user", "content": ANSWER}]


def client(url: str) -> OpenAI:
    return OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)


def answer(url: str, model: str) -> Mapping[str, Any]:
    completion = client(url).chat.completions.create(model=model, temperature=0, messages=MESSAGES)
    (choice,) = completion.choices
    assert completion.usage is not None
    return {
        "text": choice.message.content,
        "reasoning": getattr(choice.message, "reasoning_content", ""),
        "finish": choice.finish_reason,
        "usage": completion.usage.model_dump(),
    }


def stream(url: str, model: str) -> Mapping[str, Any]:
    pieces = []
    with client(url).chat.completions.stream(
        model=model, temperature=0, messages=MESSAGES, stream_options={"include_usage": True}
    ) as events:
        pieces = [event.delta for event in events if event.type == "content.delta"]
        completion = events.get_final_completion()
    (choice,) = completion.choices
    assert completion.usage is not None
    return {
        "text": choice.message.content,
        "reasoning": getattr(choice.message, "reasoning_content", ""),
        "pieces": pieces,
        "finish": choice.finish_reason,
        "usage": completion.usage.model_dump(),
    }


def tools(url: str, model: str) -> Mapping[str, Any]:
    def ask(messages: list[Any]) -> Any:
        return (
            client(url)
            .chat.completions.create(model=model, temperature=0, messages=messages, tools=[TOOL])
            .choices[0]
            .message
        )

    return loop(ask)


def stream_tools(url: str, model: str) -> Mapping[str, Any]:
    def ask(messages: list[Any]) -> Any:
        with client(url).chat.completions.stream(model=model, temperature=0, messages=messages, tools=[TOOL]) as events:
            return events.get_final_completion().choices[0].message

    return loop(ask)


class Person(BaseModel):
    name: str
    age: int


def structured(url: str, model: str) -> Mapping[str, Any]:
    completion = client(url).chat.completions.parse(
        model=model,
        temperature=0,
        messages=[{"role": "user", "content": OBJECT_QUESTION}],
        response_format=Person,
    )
    person = completion.choices[0].message.parsed
    assert isinstance(person, Person)
    return person.model_dump()


def loop(ask: Any) -> Mapping[str, Any]:
    calls: list[Mapping[str, Any]] = []
    messages: list[Any] = [{"role": "user", "content": TOOLS_QUESTION}]
    while (message := ask(messages)).tool_calls:
        messages.append(message)
        for call in message.tool_calls:
            result = weather(json.loads(call.function.arguments), calls)
            messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
    return {"text": message.content, "calls": calls}


main({"answer": answer, "stream": stream, "tools": tools, "stream_tools": stream_tools, "structured": structured})
