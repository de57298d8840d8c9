"""Where a serve is reached from its own machine."""

from hipfire.lifecycle.health import reached_at


def url_of(host: str, port: int) -> str:
    """The URL of what listens on a host's port."""
    host = reached_at(host)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
