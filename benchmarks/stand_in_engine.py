"""Speaks the wire's messages on stdin and stdout, and answers with one token over and over: `server_overhead`'s engine.

`python benchmarks/stand_in_engine.py PAUSE` leaves a pause of so many seconds after each token.
"""

import queue
import sys
import threading
import time

from hipfire.wire.framing import Message, decode, encode
from hipfire.wire.messages import Finished, Generate, Heartbeat, Hello, Load, Loaded, Started, Token

CONTEXT = 1 << 20
# An ordinary piece of text in the tiny model's vocabulary.
TOKEN = 300


def main() -> None:
    say(Hello(pid=0, version="stand-in"))
    inbox: queue.Queue[Message | None] = queue.Queue()
    threading.Thread(target=listen, args=(inbox,), daemon=True).start()
    pause_s = float(sys.argv[1])
    left: dict[str, int] = {}
    while True:
        while not left or not inbox.empty():
            message = inbox.get()
            if message is None:
                return
            hear(message, left)
        say(*(Token(id=id_, token=TOKEN) for id_ in left))
        left = {id_: n - 1 for id_, n in left.items()}
        for id_ in [id_ for id_, n in left.items() if not n]:
            del left[id_]
            say(
                Finished(
                    id=id_, reason="length", n_prompt=1, n_cached=0, n_generated=0, prompt_ms=1.0, decode_ms=1.0
                )
            )  # fmt: skip
        if pause_s:
            time.sleep(pause_s)


def listen(inbox: "queue.Queue[Message | None]") -> None:
    for line in sys.stdin.buffer:
        inbox.put(decode(line))
    inbox.put(None)


def hear(message: Message, left: dict[str, int]) -> None:
    """Answer a message, or take it among those that tokens are `left` of."""
    if isinstance(message, Load):
        say(
            Loaded(
                path=message.path, architecture="llama", device="none", native=False, n_vocab=512,
                context_length=CONTEXT, kv_cache="none", memory_nbytes=0, load_ms=0.0,
            )
        )  # fmt: skip
    elif isinstance(message, Generate):
        say(Started(id=message.id, n_cached=0))
        left[message.id] = message.max_tokens
    say(Heartbeat(busy_s=0.0))


def say(*messages: Message) -> None:
    sys.stdout.buffer.write(b"".join(map(encode, messages)))
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
