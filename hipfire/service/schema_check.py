"""Whether the schemas of a request can be kept to, before the request waits for anything. Knows no model.

Looks at a schema first, and then has it compiled in a process of its own: see `grammar.check`.
"""

import hashlib
import json
import subprocess
import sys
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import trio

import hipfire
from hipfire.errors import InvalidRequest, ServerBusy, Unsupported
from hipfire.grammar.bounds import check_bounds
from hipfire.grammar.rules import Rules
from hipfire.service.request import ChatJob

_MOST_PROCESSES = 2
# Only a machine that is far too busy does not give a process its half second in this.
_PATIENCE_S = 10.0
_MOST_REMEMBERED = 256
_PACKAGE_PARENT = Path(hipfire.__file__).parents[1]

Compile = Callable[[bytes], Awaitable[bytes | None]]
"""From the input of `grammar.check` to its output; None: the process died of it."""

Finding = dict[str, Any]
"""One of the objects that `grammar.check` writes."""


@attrs.frozen(kw_only=True)
class Verdict:
    """`is_lenient`: schemas that are not strict have keywords that are not heeded; `warnings` says which."""

    is_lenient: bool = False
    warnings: tuple[str, ...] = ()


@attrs.frozen(kw_only=True)
class _Asked:
    path: str
    schema: Mapping[str, object]
    is_strict: bool

    def grammars(self) -> list[str]:
        """With all of the schema; then, if it is not strict, without what cannot be heeded."""
        return [self._grammar(is_lenient=is_lenient) for is_lenient in ((False,) if self.is_strict else (False, True))]

    def _grammar(self, *, is_lenient: bool) -> str:
        rules = Rules(lambda text: [text], lenient=is_lenient)
        return rules.grammar(rules.json(self.schema, strict=self.is_strict))


async def compile_apart(asked: bytes) -> bytes | None:
    """Run `grammar.check` with this interpreter. It is killed when the caller is cancelled."""
    done = await trio.run_process(
        [sys.executable, "-m", "hipfire.grammar.check"],
        # See `engine_process`: Python looks into the working directory first.
        cwd=_PACKAGE_PARENT,
        stdin=asked,
        capture_stdout=True,
        stderr=subprocess.DEVNULL,
        check=False,
        start_new_session=True,
        deliver_cancel=_kill,
    )
    return done.stdout if done.returncode == 0 else None


async def _kill(process: trio.Process) -> None:
    process.kill()


class SchemaCheck:
    """Remembers what it found out: programs send the same schema again and again."""

    def __init__(self, compile_: Compile = compile_apart) -> None:
        self._compile = compile_
        self._limit = trio.CapacityLimiter(_MOST_PROCESSES)
        self._found: OrderedDict[bytes, list[Finding] | None] = OrderedDict()

    async def check(self, job: ChatJob) -> Verdict:
        """Raises InvalidRequest for schemas that are too much, Unsupported for one that cannot be kept to."""
        asked = list(_asked(job))
        if not asked:
            return Verdict()
        for item in asked:
            check_bounds(item.schema, item.path)
        found = await self._find(json.dumps([item.grammars() for item in asked]).encode())
        if found is None:
            path = asked[0].path if len(asked) == 1 else "tools"
            raise InvalidRequest(f"{path}: too complex to be kept to", param=path)
        return _verdict(asked, found)

    async def _find(self, grammars: bytes) -> list[Finding] | None:
        key = hashlib.sha256(grammars).digest()
        if key not in self._found:
            self._found[key] = await self._compiled(grammars)
            if len(self._found) > _MOST_REMEMBERED:
                self._found.popitem(last=False)
        self._found.move_to_end(key)
        return self._found[key]

    async def _compiled(self, grammars: bytes) -> list[Finding] | None:
        said = None
        with trio.move_on_after(_PATIENCE_S) as patience:
            async with self._limit:
                said = await self._compile(grammars)
        if patience.cancelled_caught:
            raise ServerBusy("the machine is too busy to look at the schema", retry_after_s=1)
        found: list[Finding] | None = None if said is None else json.loads(said)
        return found


def _asked(job: ChatJob) -> Iterator[_Asked]:
    """Every schema that an answer may have to keep to."""
    wanted = job.answer_format
    if wanted is not None and not job.must_call:
        yield _Asked(path=wanted.path, schema=wanted.schema, is_strict=wanted.is_strict)
    if wanted is not None or job.must_call:
        for tool in job.tools:
            if not job.must_call or tool.name in job.must_call:
                yield _Asked(path=tool.path, schema={**tool.parameters, "type": "object"}, is_strict=tool.is_strict)


def _verdict(asked: Sequence[_Asked], found: Sequence[Finding]) -> Verdict:
    warnings: list[str] = []
    for item, finding in zip(asked, found, strict=True):
        if finding["chosen"] is None:
            raise Unsupported(f"{item.path}: cannot be kept to: {finding['error']}", param=item.path)
        if finding["chosen"] > 0:
            warnings.append(f"{item.path}: not all of it is kept to: {finding['error']}")
    return Verdict(is_lenient=bool(warnings), warnings=tuple(warnings))
