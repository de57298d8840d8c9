import json
import logging
import sys

from hipfire.log_lines import JsonLines


def record_of(message: str, *args: object, **more: object) -> logging.LogRecord:
    record = logging.LogRecord("hipfire.server", logging.WARNING, "", 1, message, args, None)
    record.__dict__.update(created=1.5, **more)
    return record


def test_a_record_is_one_line_whatever_it_holds() -> None:
    line = JsonLines().format(record_of("a\n%s", "b\u2028"))
    assert len(line.splitlines()) == 1
    assert json.loads(line) == {
        "time": "1970-01-01T00:00:01.500Z",
        "level": "warning",
        "logger": "hipfire.server",
        "message": "a\nb\u2028",
    }


def test_fields_stand_beside_the_message() -> None:
    document = json.loads(JsonLines().format(record_of("GET /", fields={"method": "GET", "status": 200})))
    assert (document["message"], document["method"], document["status"]) == ("GET /", "GET", 200)


def test_a_traceback_is_in_the_line() -> None:
    try:
        raise ValueError("why")
    except ValueError:
        line = JsonLines().format(record_of("it broke", exc_info=sys.exc_info()))
    assert "ValueError: why" in json.loads(line)["traceback"]
    assert len(line.splitlines()) == 1
