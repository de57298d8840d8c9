from pathlib import Path

import pytest
import trio

from hipfire.service.engine_process import spawn_engine
from hipfire.wire.framing import decode
from hipfire.wire.messages import Hello


@pytest.mark.slow
async def test_the_engine_is_ours_whatever_the_working_directory_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoy = tmp_path / "hipfire"
    decoy.mkdir()
    (decoy / "__init__.py").write_text("raise SystemExit('not this one')")
    (tmp_path / "numpy.py").write_text("raise SystemExit('nor this one')")
    monkeypatch.chdir(tmp_path)

    process = await spawn_engine()
    assert process.stdin is not None
    assert process.stdout is not None
    with trio.fail_after(60):
        line = await process.stdout.receive_some(1 << 16)
        await process.stdin.aclose()
        assert await process.wait() == 0
    await process.stdout.aclose()
    hello = decode(line.splitlines(keepends=True)[0].rstrip(b"\n"))
    assert isinstance(hello, Hello)
    assert hello.pid == process.pid
