"""The request field about the form of the answer. Knows no model, and nothing of what is in a schema."""

from typing import Any, NewType

import attrs
import cattrs

from hipfire.errors import InvalidRequest
from hipfire.server.strict import expected
from hipfire.service.request import AnswerFormat

AnswerSchema = NewType("AnswerSchema", dict[str, object])

_SCHEMA = "response_format.json_schema.schema"
_KINDS = ("text", "json_object", "json_schema")


@attrs.frozen(kw_only=True)
class SchemaField:
    """Its name and description are for models that are told of them, which none is here."""

    schema: AnswerSchema | None = None
    strict: bool | None = None


@attrs.frozen(kw_only=True)
class ResponseFormat:
    type: str
    json_schema: SchemaField | None = None


def register(converter: cattrs.Converter) -> None:
    """Teach a converter the types of this module."""
    converter.register_structure_hook(AnswerSchema, _structure_schema)


def answer_format_of(wanted: ResponseFormat | None) -> AnswerFormat | None:
    """What the answer must be; None: any text. Raises InvalidRequest."""
    if wanted is None or wanted.type == "text":
        return None
    if wanted.type == "json_object":
        return AnswerFormat(schema={"type": "object"})
    if wanted.type != "json_schema":
        raise InvalidRequest(f"response_format.type: must be one of {', '.join(_KINDS)}", param="response_format.type")
    if wanted.json_schema is None or wanted.json_schema.schema is None:
        raise InvalidRequest(f"{_SCHEMA}: is missing", param=_SCHEMA)
    return AnswerFormat(schema=wanted.json_schema.schema, is_strict=wanted.json_schema.strict is True, path=_SCHEMA)


def _structure_schema(value: Any, _: Any) -> AnswerSchema:
    if type(value) is not dict:
        raise expected("an object", value)
    return AnswerSchema(value)
