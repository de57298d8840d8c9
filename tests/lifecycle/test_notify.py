import os
import socket
from pathlib import Path

from hipfire.lifecycle.notify import Notifier


def test_it_is_one_datagram_each(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(str(tmp_path / "notify"))
        notifier = Notifier(str(tmp_path / "notify"))
        notifier.status("loading")
        notifier.ready("listening")
        notifier.stopping()
        assert [receiver.recv(100) for _ in range(3)] == [
            b"STATUS=loading",
            b"READY=1\nSTATUS=listening",
            b"STOPPING=1",
        ]


def test_an_abstract_address_begins_with_a_zero_byte() -> None:
    name = f"hipfire-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind("\0" + name)
        Notifier("@" + name).stopping()
        assert receiver.recv(100) == b"STOPPING=1"


def test_nobody_there_is_no_error(tmp_path: Path) -> None:
    Notifier(str(tmp_path / "nobody")).ready("listening")
    Notifier(None).ready("listening")
