"""Renders chat templates as hipfire does, and compares with what `transformers` made of the same conversations.

`python docs/compare_renders.py TEMPLATES RENDERS`: a folder of NAME.jinja, and one of NAME.json with the reference's
cases (`case`, `messages`, `tools`, `kwargs`, and `rendered` or `error`). docs/renders.md has what it said, with
reasons. Templates are their vendors' files, so neither folder is part of hipfire.
"""

import functools
import json
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import attrs

from hipfire.errors import HipfireError, TemplateError
from hipfire.formats.open import open_checkpoint
from hipfire.server.schema import parse_chat_request, to_job
from hipfire.service.conversation import encode_conversation
from hipfire.service.model_text import ModelText
from hipfire.text.dialects.families import family_of
from hipfire.text.template import ChatTemplate
from hipfire.text.tokenizer import Tokenizer

# Of no family: it turns any text into tokens and back.
VOCABULARY = Path(__file__).parents[1] / "fixtures" / "tiny-llama" / "model.gguf"


@attrs.frozen(kw_only=True)
class Case:
    """One conversation with one template. `variables` are the template's own."""

    name: str
    source: str
    template: ChatTemplate
    document: Mapping[str, Any]
    variables: Mapping[str, Any]

    def compared(self, text: str) -> str:
        if "error" in self.document:
            return "rendered, where the template refuses"
        if text == self.document["rendered"]:
            return "equal"
        return "as left undefined" if text == self.document.get("undef_none_rendered") else "different"


@functools.cache
def template_of(source: str, bos_token: str, eos_token: str) -> ChatTemplate:
    """Kept, since taking a template apart is most of the time."""
    noon = datetime(2026, 1, 15, 12)  # noqa: DTZ001
    return ChatTemplate(source, bos_token=bos_token, eos_token=eos_token, now=lambda: noon)


def cases(templates: Path, renders: Path) -> Iterator[Case]:
    """All of them; a file of renders without a template is left out."""
    for path in sorted(renders.glob("*.json")):
        template = templates / f"{path.stem}.jinja"
        if not template.exists():
            continue
        source = template.read_text(encoding="utf-8")
        for document in json.loads(path.read_text(encoding="utf-8")):
            variables = dict(document["kwargs"])
            bos, eos = variables.pop("bos_token", ""), variables.pop("eos_token", "")
            yield Case(
                name=f"{path.stem}: {document['case']}",
                source=source,
                template=template_of(source, bos, eos),
                document=document,
                variables=variables,
            )


def alone(case: Case) -> str:
    """What comes of the conversation as it is, without anything that hipfire does to it."""
    turns = [
        {**turn, "thinking": turn["reasoning_content"]} if "reasoning_content" in turn else turn
        for turn in case.document["messages"]
    ]
    try:
        return case.compared(case.template.render(turns, tools=case.document["tools"], **case.variables))
    except TemplateError:
        return "refused by both" if "error" in case.document else "refused here alone"


def whole_way(case: Case, tokenizer: Tokenizer) -> str:
    """What a request with the conversation puts before the model."""
    messages = case.document["messages"]
    try:
        job = to_job(parse_chat_request({"messages": messages, "tools": case.document["tools"]}))
        text = ModelText(
            tokenizer=tokenizer,
            template=case.template,
            family=family_of(card=None, architecture="", template=case.source),
            tells_tools="tools" not in case.source,
        )
        arguments = {name: value for name, value in case.variables.items() if name != "add_generation_prompt"}
        ids = encode_conversation(text, job.messages, system=None, arguments=arguments, tools=job.tools)
    except HipfireError as error:
        return f"400 {error}"
    if messages[-1]["role"] == "assistant":
        return "goes on with the assistant's last message"
    control = {id_: name.encode() for name, id_ in tokenizer.control_texts.items()}
    told = b"".join(control.get(id_) or tokenizer.token_bytes(id_) for id_ in ids).decode()
    return case.compared(told)


def main() -> None:
    with open_checkpoint(VOCABULARY) as checkpoint:
        tokenizer = Tokenizer.from_metadata(checkpoint.metadata)
    found: dict[str, dict[str, list[str]]] = {"The template alone": defaultdict(list), "A request": defaultdict(list)}
    for case in cases(Path(sys.argv[1]), Path(sys.argv[2])):
        found["The template alone"][alone(case)].append(case.name)
        found["A request"][whole_way(case, tokenizer)].append(case.name)
    for way, answers in found.items():
        print(f"{way}: {sum(map(len, answers.values()))} cases")
        for answer, names in sorted(answers.items(), key=lambda item: -len(item[1])):
            print(f"  {len(names):5} {answer}")
            if answer not in ("equal", "refused by both"):
                print(*(f"        {name}" for name in names), sep="\n")


if __name__ == "__main__":
    main()
