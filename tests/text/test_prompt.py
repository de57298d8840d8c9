"""Text of a client never becomes a control token, whatever the template does with it."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_vocabulary import byte_level, sentence_piece

from hipfire.errors import TemplateError
from hipfire.text.prompt import encode_chat
from hipfire.text.template import ChatTemplate
from hipfire.text.tokenizer import Tokenizer

CONTROL = ["<s>", "<|im_start|>", "<|im_end|>", "<|user|>", "<|assistant|>", "<|tool_call|>", "[INST]", "</think>"]
TOKENIZER = Tokenizer.from_metadata(
    byte_level(control=CONTROL, user_defined=["<tool>", "<|channel|>"], bos_token_id=256)
)
MARKS = "\ufdd0\ufdd1\ufdd2"

# All that templates do with what they are given: put it between control tokens and next to pieces of them, trim it, cut
# it up, change its case, put it into JSON and into Python's spelling, use it as a key.
SOURCE = """
{{- bos_token }}
{%- if tools is defined %}<|im_start|>{{ tools | tojson }}{{ tools[0].name }}{{ tools | string }}<|channel|>{% endif %}
{%- for message in messages %}
    {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}
    {{- '<|' + message.role + '|>' ~ message.content | trim ~ '<|' }}{{ message.content | lower }}{{ '|>' }}
    {{- message.content.split('</think>')[-1] }}<|{{ message.content }}_end|><|im_{{ message.content }}
    {{- message.content | upper | replace('-', '') }}[{{ message.content }}]
    {%- for call in message.tool_calls or [] %}<|tool_call|>{{ call.function.arguments | tojson(indent=1) }}
        {%- for key, value in call.function.arguments.items() %}<{{ key }}>{{ value }}{% endfor %}
    {%- endfor %}
{%- endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant\\n{{ model_identity }}{% endif %}
"""


def encode(
    source: str, given_messages: list[dict[str, Any]], using: Tokenizer = TOKENIZER, /, **kwargs: Any
) -> list[int]:
    return encode_chat(ChatTemplate(source, bos_token="<s>", eos_token="</s>"), using, given_messages, **kwargs)


def readable(ids: list[int], tokenizer: Tokenizer = TOKENIZER) -> str:
    """The text, with control tokens as «…»."""
    control = {token: text for text, token in tokenizer.control_texts.items()}
    parts = [f"«{control[token]}»".encode() if token in control else tokenizer.token_bytes(token) for token in ids]
    return b"".join(parts).decode()


def conversation(texts: list[str]) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Messages and variables with each of eight strings in a place of its own."""
    user, answer, result, description, name, key, value, identity = texts
    call = {"function": {"name": name, "arguments": {key: value, "nested": [{value: [key]}]}}}
    messages = [
        {"role": "user", "content": user},
        {"role": "assistant", "content": answer, "tool_calls": [call]},
        {"role": "tool", "content": result},
    ]
    tool = {"name": name, "description": description, "parameters": {"properties": {key: {"enum": [value]}}}}
    return messages, {"tools": [tool], "model_identity": identity}


@pytest.fixture(scope="module")
def template() -> ChatTemplate:
    return ChatTemplate(SOURCE, bos_token="<s>", eos_token="</s>")


@pytest.fixture(scope="module")
def control_of_harmless(template: ChatTemplate) -> list[int]:
    messages, variables = conversation(list("abcdefgh"))
    return control(encode_chat(template, TOKENIZER, messages, **variables))


def control(ids: list[int]) -> list[int]:
    return [token for token in ids if token in set(TOKENIZER.control_texts.values())]


pieces = st.sampled_from(
    [
        *CONTROL, *MARKS, *"<|>[]_-/ ", "<|channel|>", "<|", "|>", "im_start", "im_end", "_end|>", "im_", "<|im",
        "user", "assistant", "<|USER|>", "<|im-_end|>", "INST", "s>", "</", "think>", "tool", "_call|>", "call", "257",
        "\ufdd0257\ufdd1", "é", "日本", "\n", "\\", '"', "'",
    ]
)  # fmt: skip
client_text = st.lists(pieces, max_size=5).map("".join)


@settings(derandomize=True, deadline=None, max_examples=80)
@given(texts=st.lists(client_text, min_size=8, max_size=8))
def test_the_control_tokens_are_the_template_s(
    template: ChatTemplate, control_of_harmless: list[int], texts: list[str]
) -> None:
    messages, variables = conversation(texts)
    before = json.dumps([messages, variables])
    assert control(encode_chat(template, TOKENIZER, messages, **variables)) == control_of_harmless
    assert json.dumps([messages, variables]) == before


@settings(derandomize=True, deadline=None, max_examples=80)
@given(user=client_text, answer=client_text)
def test_the_client_s_text_is_there_byte_for_byte(user: str, answer: str) -> None:
    template = ChatTemplate(
        "<|im_start|>{{ messages[0].content }}<|im_end|>{{ messages[1].content }}", bos_token="", eos_token=""
    )
    ids = encode_chat(
        template, TOKENIZER, [{"role": "user", "content": user}, {"role": "assistant", "content": answer}]
    )
    start, end = (TOKENIZER.control_texts[text] for text in ("<|im_start|>", "<|im_end|>"))
    cut = ids.index(end)
    assert ids[0] == start
    assert b"".join(map(TOKENIZER.token_bytes, ids[1:cut])).decode() == user
    assert b"".join(map(TOKENIZER.token_bytes, ids[cut + 1 :])).decode() == answer


@pytest.mark.parametrize(
    ("source", "content", "expected"),
    [
        ("<|im_start|>{{ messages[0].content }}<|im_end|>", "<|im_end|>", "«<|im_start|>»<|im_end|>«<|im_end|>»"),
        # Across the border, from either side and from both.
        ("{{ messages[0].content }}im_end|>", "<|", "<|im_end|>"),
        ("<|im_{{ messages[0].content }}", "end|>", "<|im_end|>"),
        ("<|{{ messages[0].content }}|>", "im_end", "<|im_end|>"),
        # What the template looks for in a client's text is found there as ever.
        ("{{ messages[0].content.split('</think>')[-1] }}</think>", "a</think>b", "b«</think>»"),
        ("{{ '[INST]' in messages[0].content }}{{ '[INST]' }}", "[INST]", "True«[INST]»"),
        ("{{ messages[0].content | replace('[INST]', '</think>') }}", "[INST]", "«</think>»"),
        # Roles, which the template itself makes into control tokens.
        ("{{ '<|' + messages[0].role + '|>' }}", "", "«<|user|>»"),
        ("<|{{ messages[0].role }}|>\n<|{{ messages[0].content }}|>", "user", "«<|user|>»\n<|user|>"),
        # USER_DEFINED tokens are found in any text, but chat markup is not.
        ("{{ messages[0].content }}<|channel|>", "<tool><|channel|>", "<tool><|channel|>«<|channel|>»"),
        # A template's variables.
        ("{% set end = '<|im_end|>' %}{{ end }}{{ {'user': '[INST]'}[messages[0].role] }}", "", "«<|im_end|>»«[INST]»"),
        ("{{ eos_token }}{{ bos_token * 2 }}", "", "</s>«<s>»«<s>»"),
    ],
)  # fmt: skip
def test_whose_text_it_is(source: str, content: str, expected: str) -> None:
    assert readable(encode(source, [{"role": "user", "content": content}])) == expected


def test_marks_that_a_template_makes_itself_name_no_other_token() -> None:
    source = "{{ '%c' % 64976 }}97{{ '%c' % 64977 }}{{ '%c' % 64976 }}999999{{ '%c' % 64977 }}"
    assert encode(source, []) == []


def test_a_client_may_use_the_marks_but_not_all_noncharacters() -> None:
    assert readable(encode("{{ messages[0] }}", [{MARKS: MARKS}]))
    with pytest.raises(TemplateError, match="noncharacters"):
        encode("{{ messages[0].content }}", [{"content": "".join(map(chr, range(0xFDD0, 0xFDF0)))}])


def test_nesting_without_end_is_the_conversation_s_fault() -> None:
    nested: list[Any] = [MARKS]
    for _ in range(2000):
        nested = [nested]
    with pytest.raises(TemplateError, match="nested too deep"):
        encode("{{ messages[0].content }}", [{"content": nested}])


def test_a_client_s_variables_do_not_replace_the_conversation() -> None:
    variables = {"messages": "no", "template": 1, "tokenizer": 2, "self": 3, "render budget": 4}
    assert readable(encode("{{ messages[0].content }}{{ template }}", [{"content": "yes"}], **variables)) == "yes1"


@pytest.mark.parametrize(("adds_bos", "source", "n_bos"), [
    (True, "{{ bos_token }}Hi", 1),
    (True, "<s>Hi", 1),
    (True, "Hi", 1),
    (True, "", 1),
    (False, "{{ bos_token }}Hi", 1),
    (False, "Hi", 0),
])  # fmt: skip
def test_bos_is_there_once(adds_bos: bool, source: str, n_bos: int) -> None:
    metadata = byte_level(control=["<s>"], bos_token_id=256, add_bos_token=adds_bos)
    ids = encode(source, [], Tokenizer.from_metadata(metadata))
    assert ids[:n_bos] == [256] * n_bos
    assert ids.count(256) == n_bos


def test_a_client_s_bos_is_not_the_prompt_s() -> None:
    metadata = byte_level(control=["<s>"], bos_token_id=256, add_bos_token=True)
    ids = encode("{{ messages[0].content }}", [{"content": "<s>"}], Tokenizer.from_metadata(metadata))
    assert ids == [256, *Tokenizer.from_metadata(metadata).encode("<s>")]


def test_sentence_piece_puts_its_space_after_each_control_token() -> None:
    tokenizer = Tokenizer.from_metadata(sentence_piece(["a", "▁", "▁a"]))
    ids = encode("{{ bos_token }}a</s>{{ messages[0].content }}</s>", [{"content": "a"}], tokenizer)
    assert ids == [1, 261, 2, 261, 2]


def test_a_template_is_compiled_once_for_a_tokenizer() -> None:
    template = ChatTemplate("<s>{{ messages[0].content }}", bos_token="", eos_token="")
    made = []

    def prepare(template: ChatTemplate, tokenizer: Tokenizer) -> object:
        made.append(tokenizer)
        return template

    other = Tokenizer.from_metadata(byte_level())
    for tokenizer in (TOKENIZER, TOKENIZER, other, other):
        assert template.prepared_for(tokenizer, prepare) is template
    assert made == [TOKENIZER, other]


def test_failures_are_the_template_s() -> None:
    with pytest.raises(TemplateError, match=r"^no <\|im_end\|> here$"):
        encode("{{ raise_exception('no <|im_end|> here') }}", [])


def test_smollm2(smollm2: Tokenizer) -> None:
    source = "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>' + '\n' }}{% endfor %}"
    ids = encode(source, [{"role": "user", "content": "Say <|im_end|>"}], smollm2)
    assert readable(ids, smollm2) == "«<|im_start|>»user\nSay <|im_end|>«<|im_end|>»\n"
