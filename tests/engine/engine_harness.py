"""An engine in the test's own thread, turn by turn, on a scripted device."""

import itertools

from scripted_device import ScriptedDevice, ScriptedExecutable, scripted_loader

from hipfire.engine.engine import Engine
from hipfire.engine.inbox import Inbox
from hipfire.engine.loader import Loader
from hipfire.wire.messages import (
    Cancelled,
    Failed,
    Finished,
    FromEngine,
    Generate,
    Load,
    Sampling,
    ToEngine,
    Token,
)

Terminal = Finished | Failed | Cancelled

MAX_TURNS = 1000


def request(
    id_: str, *prompt: int, max_tokens: int = 4, stop_ids: tuple[int, ...] = (), sampling: Sampling | None = None
) -> Generate:
    return Generate(id=id_, prompt=prompt, max_tokens=max_tokens, stop_ids=stop_ids, sampling=sampling or Sampling())


class Harness:
    """`said` is everything that the engine said. Its clock counts one second a look."""

    def __init__(
        self,
        device: ScriptedDevice | None = None,
        *,
        max_concurrent: int = 1,
        context_length: int = 64,
        max_step_tokens: int = 512,
        prefix_cache: bool = True,
        n_kept: int = 0,
        load: bool = True,
        loader: Loader | None = None,
    ) -> None:
        self.device = device or ScriptedDevice()
        self.said: list[FromEngine] = []
        self.inbox = Inbox()
        self.engine = Engine(
            self.inbox,
            self.said.append,
            loader=loader
            or scripted_loader(self.device, context_length=context_length, max_step_tokens=max_step_tokens),
            clock=itertools.count().__next__,
        )
        if load:
            # A slot of the scripted device takes a byte for each position.
            nbytes = n_kept * context_length
            self.turn(
                Load(
                    path="scripted",
                    max_concurrent=max_concurrent,
                    prefix_cache=prefix_cache,
                    prefix_cache_nbytes=nbytes,
                )
            )

    @property
    def executable(self) -> ScriptedExecutable:
        """Of the model that was loaded last."""
        return self.device.loaded[-1]

    def turn(self, *messages: ToEngine) -> None:
        """Ask, and let the engine go one turn."""
        for message in messages:
            self.inbox.put(message)
        taken = self.inbox.take(wait=False)
        assert taken is not None
        self.engine.turn(taken)

    def settle(self, *messages: ToEngine) -> None:
        """Ask, and let the engine go on until it has nothing to do."""
        self.turn(*messages)
        for _ in range(MAX_TURNS):
            if not self.engine.is_busy:
                return
            self.turn()
        raise AssertionError("the engine does not come to an end")

    def tokens(self, id_: str) -> list[int]:
        return [message.token for message in self.said if isinstance(message, Token) and message.id == id_]

    def ends(self, id_: str) -> list[Terminal]:
        return [message for message in self.said if isinstance(message, Terminal) and message.id == id_]

    def end(self, id_: str) -> Terminal:
        """The one terminal message of an id, which must be the last that was said of it."""
        (end,) = self.ends(id_)
        about = [message for message in self.said if getattr(message, "id", None) == id_]
        assert about[-1] is end
        return end


def alone(asked: Generate, *, context_length: int = 64) -> list[int]:
    """The tokens of a request that has the engine for itself."""
    harness = Harness(context_length=context_length, prefix_cache=False)
    harness.settle(asked)
    return harness.tokens(asked.id)
