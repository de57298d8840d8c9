"""Tells systemd that a service of Type=notify is ready: sd_notify(3), which is one datagram."""

import contextlib
import socket


def notify_ready(address: str) -> None:
    """Send it to the socket that NOTIFY_SOCKET names; nobody there is no error."""
    # A leading @ stands for the zero byte of an abstract address.
    target = "\0" + address[1:] if address.startswith("@") else address
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.sendto(b"READY=1", target)
