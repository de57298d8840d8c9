"""LiteLLM, as people use it: see test_clients.py for what each case must report."""

import json
from collections.abc import Callable, Mapping
from typing import Any

import litellm
from cases import ANSWER, OBJECT_QUESTION, TOOL, TOOLS_QUESTION, main, weather
from pydantic import BaseModel

MESSAGES: list[Any] = [{"role": "user", "content": ANSWER}]


def ask(url: str, model: str, messages: list[Any], **fields: Any) -> Any:
    return litellm.completion(
        model=f"hosted_vllm/{model}", api_base=f"{url}/v1", messages=messages, temperature=0, max_retries=0, **fields
    )


def ask_streamed(url: str, model: str, messages: list[Any], **fields: Any) -> Any:
    chunks = list(ask(url, model, messages, stream=True, stream_options={"include_usage": True}, **fields))
    return litellm.stream_chunk_builder(chunks, messages=messages)


def told(completion: Any) -> dict[str, Any]:
    (choice,) = completion.choices
    return {
        "text": choice.message.content,
        "reasoning": getattr(choice.message, "reasoning_content", ""),
        "finish": choice.finish_reason,
        "usage": completion.usage.model_dump(),
    }


def answer(url: str, model: str) -> Mapping[str, Any]:
    return told(ask(url, model, MESSAGES))


def stream(url: str, model: str) -> Mapping[str, Any]:
    chunks = list(ask(url, model, MESSAGES, stream=True, stream_options={"include_usage": True}))
    pieces = [chunk.choices[0].delta.content for chunk in chunks if chunk.choices]
    return {**told(litellm.stream_chunk_builder(chunks, messages=MESSAGES)), "pieces": [p for p in pieces if p]}


def tools(url: str, model: str) -> Mapping[str, Any]:
    return loop(lambda messages: ask(url, model, messages, tools=[TOOL]))


def stream_tools(url: str, model: str) -> Mapping[str, Any]:
    return loop(lambda messages: ask_streamed(url, model, messages, tools=[TOOL]))


class Person(BaseModel):
    name: str
    age: int


def structured(url: str, model: str) -> Mapping[str, Any]:
    messages = [{"role": "user", "content": OBJECT_QUESTION}]
    content = ask(url, model, messages, response_format=Person).choices[0].message.content
    return Person.model_validate_json(content).model_dump()


def loop(answer_to: Callable[[list[Any]], Any]) -> Mapping[str, Any]:
    calls: list[Mapping[str, Any]] = []
    messages: list[Any] = [{"role": "user", "content": TOOLS_QUESTION}]
    while (message := answer_to(messages).choices[0].message).tool_calls:
        messages.append(message.model_dump())
        for call in message.tool_calls:
            result = weather(json.loads(call.function.arguments), calls)
            messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
    return {"text": message.content, "calls": calls}


main({"answer": answer, "stream": stream, "tools": tools, "stream_tools": stream_tools, "structured": structured})
