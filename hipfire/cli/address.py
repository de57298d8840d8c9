"""Where a serve is reached from its own machine."""

# What listens on every address is reached on the loopback one.
_REACHED_AT = {"0.0.0.0": "127.0.0.1", "::": "::1"}


def url_of(host: str, port: int) -> str:
    """The URL of what listens on a host's port."""
    host = _REACHED_AT.get(host, host)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
