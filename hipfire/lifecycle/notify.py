"""Tells systemd how a service of Type=notify is doing: sd_notify(3), which is one datagram."""

import contextlib
import socket


class Notifier:
    """Speaks to the socket that NOTIFY_SOCKET names; to nobody where there is none."""

    def __init__(self, address: str | None) -> None:
        self._address = address

    def ready(self, status: str) -> None:
        """The service answers. `status` is a line for people."""
        self._send(f"READY=1\nSTATUS={status}")

    def status(self, status: str) -> None:
        """What the service is doing, in a line for people."""
        self._send(f"STATUS={status}")

    def stopping(self) -> None:
        """The service is about to end."""
        self._send("STOPPING=1")

    def _send(self, message: str) -> None:
        if self._address is None:
            return
        # A leading @ stands for the zero byte of an abstract address.
        target = "\0" + self._address[1:] if self._address.startswith("@") else self._address
        # Nobody there is no error.
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.sendto(message.encode(), target)
