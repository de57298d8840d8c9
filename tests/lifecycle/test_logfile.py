import os
from pathlib import Path

from hipfire.lifecycle.logfile import open_log, rotate, tail


def test_a_large_log_becomes_the_previous_one_and_writers_go_on(tmp_path: Path) -> None:
    path = tmp_path / "new" / "serve.log"
    log = open_log(path)
    try:
        os.write(log, b"a" * 10)
        rotate(path, max_nbytes=10)
        assert path.stat().st_size == 10
        os.write(log, b"b")
        rotate(path, max_nbytes=10)
        os.write(log, b"c")
    finally:
        os.close(log)
    assert path.read_bytes() == b"c"
    assert path.with_name("serve.log.1").read_bytes() == b"a" * 10 + b"b"


def test_a_log_that_cannot_be_kept_is_emptied_all_the_same(tmp_path: Path) -> None:
    path = tmp_path / "serve.log"
    path.write_bytes(b"a" * 11)
    (tmp_path / "serve.log.1").mkdir()
    rotate(path, max_nbytes=10)
    assert path.stat().st_size == 0


def test_no_log_is_no_error(tmp_path: Path) -> None:
    rotate(tmp_path / "no")
    assert tail(tmp_path / "no", start=0, n_lines=5) == []


def test_the_tail_is_of_what_was_added(tmp_path: Path) -> None:
    path = tmp_path / "serve.log"
    path.write_bytes(b"old\n")
    start = path.stat().st_size
    path.write_bytes(b"old\n" + b"".join(b"%d\n" % i for i in range(9)) + b"\xff\n")
    assert tail(path, start=start, n_lines=3) == ["7", "8", "\ufffd"]
    # It was rotated meanwhile.
    path.write_bytes(b"new\n")
    assert tail(path, start=1000, n_lines=3) == ["new"]
