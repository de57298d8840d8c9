"""The one shape of an error's body."""

from typing import Any

import httpx


def error_of(response: httpx.Response) -> dict[str, Any]:
    """The error of a response, which must have the one shape."""
    assert response.headers["content-type"] == "application/json"
    body = response.json()
    assert set(body) == {"error"}
    assert set(body["error"]) == {"message", "type", "param", "code"}
    assert body["error"]["type"] == ("server_error" if response.status_code >= 500 else "invalid_request_error")
    error: dict[str, Any] = body["error"]
    assert isinstance(error["message"], str)
    assert error["message"]
    assert "Traceback" not in error["message"]
    return error
