"""LangChain's ChatOpenAI, as people use it: see test_clients.py for what each case must report."""

from collections.abc import Callable, Mapping
from typing import Any

from cases import ANSWER, OBJECT_QUESTION, TOOL, TOOLS_QUESTION, main, weather
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, HumanMessage, ToolMessage
from langchain_openai import ChatOpenAI
from pydantic import BaseModel


def chat_model(url: str, model: str) -> ChatOpenAI:
    return ChatOpenAI(
        base_url=f"{url}/v1", api_key="none", model=model, temperature=0, max_retries=0, stream_usage=True
    )


def usage_of(message: AIMessage) -> Mapping[str, Any]:
    assert message.usage_metadata is not None
    usage = message.usage_metadata
    return {
        "prompt_tokens": usage["input_tokens"],
        "completion_tokens": usage["output_tokens"],
        "total_tokens": usage["total_tokens"],
    }


def answer(url: str, model: str) -> Mapping[str, Any]:
    message = chat_model(url, model).invoke(ANSWER)
    return {"text": message.text, "finish": message.response_metadata["finish_reason"], "usage": usage_of(message)}


def stream(url: str, model: str) -> Mapping[str, Any]:
    chunks = list(chat_model(url, model).stream(ANSWER))
    message = joined(chunks)
    return {
        "text": message.text,
        "pieces": [chunk.text for chunk in chunks if chunk.text],
        "finish": message.response_metadata["finish_reason"],
        "usage": usage_of(message),
    }


def joined(chunks: list[AIMessageChunk]) -> AIMessageChunk:
    first, *rest = chunks
    return first.__add__(rest) if rest else first


def tools(url: str, model: str) -> Mapping[str, Any]:
    bound = chat_model(url, model).bind_tools([TOOL])
    return loop(bound.invoke)


def stream_tools(url: str, model: str) -> Mapping[str, Any]:
    bound = chat_model(url, model).bind_tools([TOOL])
    return loop(lambda messages: joined(list(bound.stream(messages))))


class Person(BaseModel):
    name: str
    age: int


def structured(url: str, model: str) -> Mapping[str, Any]:
    person = chat_model(url, model).with_structured_output(Person).invoke(OBJECT_QUESTION)
    assert isinstance(person, Person)
    return person.model_dump()


def loop(ask: Callable[[list[BaseMessage]], AIMessage]) -> Mapping[str, Any]:
    calls: list[Mapping[str, Any]] = []
    messages: list[BaseMessage] = [HumanMessage(TOOLS_QUESTION)]
    while (message := ask(messages)).tool_calls:
        messages.append(message)
        messages += [ToolMessage(weather(call["args"], calls), tool_call_id=call["id"]) for call in message.tool_calls]
    return {"text": message.text, "calls": calls}


main({"answer": answer, "stream": stream, "tools": tools, "stream_tools": stream_tools, "structured": structured})
