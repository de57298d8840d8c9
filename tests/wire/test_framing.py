import json
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hipfire.errors import WireError
from hipfire.wire import messages
from hipfire.wire.framing import decode, encode
from hipfire.wire.messages import Cancelled, FromEngine, Generate, Heartbeat, Load, Sampling, ToEngine, Token, Unload

FINITE = st.floats(allow_nan=False, allow_infinity=False)
TEXT = st.text(max_size=8)
SETTINGS = settings(derandomize=True, deadline=None, max_examples=50)
SAMPLING = st.builds(
    Sampling,
    temperature=FINITE,
    top_p=FINITE,
    logit_bias=st.dictionaries(st.integers(0, 300000), FINITE),
    seed=st.integers(0, 2**64 - 1),
    n_logprobs=st.none() | st.integers(0, 20),
)
EXAMPLES = (
    Load(path="/a/ü\n.gguf", n_threads=2, max_seq=None, prefix_cache=False, prefix_cache_nbytes=2**40),
    Unload(),
    messages.Vocabulary(lengths=(1, 0, 2), data="YWJj", end_ids=(1,)),
    Generate(
        id="a",
        prompt=(1, 2),
        max_tokens=3,
        stop_ids=(),
        sampling=Sampling(logit_bias={7: -1.5}),
        grammar='start: "\\n"\n',
    ),
    messages.Cancel(id='"quoted"'),
    messages.Hello(pid=1, version="0"),
    Heartbeat(busy_s=0.25),
    messages.LoadProgress(stage="weights", fraction=0.5),
    messages.Loaded(
        path="m",
        architecture="llama",
        device="cpu",
        native=True,
        n_vocab=9,
        context_length=8,
        kv_cache="f16",
        memory_nbytes=2**40,
        load_ms=1.5,
    ),
    messages.LoadFailed(path="m", code="unsupported", message="line\nline"),
    messages.Unloaded(),
    messages.Started(id="a", n_cached=3),
    Token(id="a", token=5),
    messages.Finished(id="a", reason="stop", n_prompt=1, n_cached=0, n_generated=2, prompt_ms=0.5, decode_ms=1.0),
    messages.Failed(id="a", code="device_error", message="é"),
    Cancelled(id="a", n_generated=4),
)


@pytest.mark.parametrize("message", EXAMPLES, ids=lambda message: type(message).__name__)
def test_a_message_is_one_line_and_comes_back_equal(message):
    line = encode(message)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert decode(line) == message


def test_every_message_has_an_example():
    assert {type(example) for example in EXAMPLES} == set(get_args(ToEngine | FromEngine))


def test_the_type_is_the_class_name_in_snake_case():
    assert json.loads(encode(messages.LoadFailed(path="", code="", message="")))["type"] == "load_failed"


@SETTINGS
@given(
    st.builds(
        Token,
        id=TEXT,
        token=st.integers(0, 300000),
        logprob=st.none() | FINITE,
        top=st.lists(st.tuples(st.integers(0, 300000), FINITE), max_size=20).map(tuple),
    )
)
def test_tokens_of_any_content_come_back_equal(token):
    assert decode(encode(token)) == token


@SETTINGS
@given(
    st.builds(
        Generate,
        id=TEXT,
        prompt=st.lists(st.integers(0, 300000)).map(tuple),
        max_tokens=st.integers(),
        stop_ids=st.lists(st.integers(0, 300000), max_size=3).map(tuple),
        sampling=SAMPLING,
    )
)
def test_requests_of_any_content_come_back_equal(generate):
    assert decode(encode(generate)) == generate


def test_a_hundred_thousand_tokens_are_one_line():
    generate = Generate(id="a", prompt=tuple(range(100_000)), max_tokens=1, stop_ids=(), sampling=Sampling())
    assert decode(encode(generate)) == generate


def test_a_whole_number_may_stand_for_a_float():
    message = decode(b'{"type":"heartbeat","busy_s":0}')
    assert message == Heartbeat(busy_s=0.0)
    assert type(message.busy_s) is float


def test_fields_with_a_default_may_be_left_out():
    assert decode(b'{"type":"cancelled","id":"a"}') == Cancelled(id="a", n_generated=0)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (b"", "not a line of JSON"),
        (b"nonsense", "not a line of JSON"),
        (b"\xff\xfe", "not a line of JSON"),
        (b"[" * 100_000, "not a line of JSON"),
        (b'{"type":"unload"}{"type":"unload"}', "not a line of JSON"),
        (b'{"type":"heartbeat","busy_s":NaN}', "NaN is not JSON"),
        (b'{"type":"heartbeat","busy_s":-Infinity}', "-Infinity is not JSON"),
        (b"[1]", "not a JSON object"),
        (b"{}", "unknown message type None"),
        (b'{"type":["token"]}', "unknown message type"),
        (b'{"type":"tokens"}', "unknown message type 'tokens'"),
        (b'{"type":"token","id":"a"}', "required field missing @ $.token"),
        (b'{"type":"token","id":"a","token":1,"text":"b"}', "extra fields found (text)"),
        (b'{"type":"token","id":7,"token":1}', "expected str @ $.id"),
        (b'{"type":"token","id":"a","token":"1"}', "expected int @ $.token"),
        (b'{"type":"token","id":"a","token":true}', "expected int @ $.token"),
        (b'{"type":"token","id":"a","token":1.0}', "expected int @ $.token"),
        (b'{"type":"token","id":"a","token":1,"logprob":"x"}', "$.logprob"),
        (b'{"type":"token","id":"a","token":1,"top":[[1,2.0,3]]}', "$.top[0]"),
        (b'{"type":"heartbeat","busy_s":true}', "expected float @ $.busy_s"),
        (b'{"type":"load","path":"m","n_threads":"2"}', "$.n_threads"),
        (b'{"type":"generate","id":"a","prompt":[1,true],"max_tokens":1,"stop_ids":[],"sampling":{}}', "$.prompt"),
        (b'{"type":"generate","id":"a","prompt":"12","max_tokens":1,"stop_ids":[],"sampling":{}}', "$.prompt"),
        (
            b'{"type":"generate","id":"a","prompt":[],"max_tokens":1,"stop_ids":[],"sampling":{"logit_bias":{"x":1}}}',
            "$.sampling.logit_bias",
        ),
    ],
)
def test_any_other_line_is_an_error_that_says_where(line, says):
    with pytest.raises(WireError) as caught:
        decode(line)
    assert says in str(caught.value)
    assert len(str(caught.value)) < 500


def test_what_is_not_a_finite_number_is_not_sent():
    with pytest.raises(ValueError, match="not JSON compliant"):
        encode(Heartbeat(busy_s=float("nan")))
