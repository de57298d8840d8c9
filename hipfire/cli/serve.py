"""`hipfire serve`: holds the port, brings the model, and serves until it is told to stop."""

import os
import signal
import sys
from collections.abc import Sequence

import click

from hipfire.catalog.registry import default_model, load_registry
from hipfire.catalog.store import Store
from hipfire.cli.downloads import resolve_or_pull
from hipfire.cli.help import ExampledCommand
from hipfire.cli.logs import log_to_stderr
from hipfire.cli.options import give_flag, setting_option, settings_of
from hipfire.cli.where import Where, read_where
from hipfire.config.environment import Environment
from hipfire.errors import ModelNotFound
from hipfire.lifecycle import bind, pidfile


@click.command(
    "serve",
    cls=ExampledCommand,
    examples=[
        ("hipfire serve smollm2:135m", "downloaded first if it is not here"),
        ("hipfire serve ./model.gguf 8080", "any GGUF file, on another port"),
        ("hipfire serve smollm2:135m 0.0.0.0:8080", "for everybody who can reach this machine"),
        ("hipfire serve --idle-timeout 0 --max-seq 4096", "stay loaded; at most 4096 tokens a conversation"),
    ],
)
@click.argument("words", nargs=-1, metavar="[MODEL] [HOST] [PORT]")
@setting_option("memory.max_seq", "--max-seq")
@setting_option("memory.kv_cache", "--kv-mode")
@setting_option("serve.idle_timeout", "--idle-timeout")
@setting_option("hardware.device", "--device")
@setting_option("hardware.threads", "--threads")
@click.option("--no-prewarm", is_flag=True, help="Load the model at the first request, not at once.")
@click.pass_context
def command(ctx: click.Context, words: Sequence[str], no_prewarm: bool) -> None:
    """Serve a model over HTTP, as OpenAI's API at /v1, until Ctrl-C.

    MODEL is a tag, the name of an installed file, or a path; without one it is HIPFIRE_MODEL or serve.default_model.
    HOST and PORT may be written host:port, [ipv6]:port or just a port. The default is 127.0.0.1:11435, which only
    this machine can reach: there is no password.

    Ctrl-C or SIGTERM lets answers that are under way finish; a second one ends them too.
    """
    environment: Environment = ctx.obj
    store = Store(environment.models_dir, load_registry())
    where = _where(words, store, ctx)
    for key, value, name in (
        ("serve.default_model", where.model, "MODEL"),
        ("serve.host", where.host, "HOST"),
        ("serve.port", where.port, "PORT"),
    ):
        if value is not None:
            give_flag(ctx, key, value, name)
    settings = settings_of(ctx)
    log_to_stderr(settings.log.level)
    host, port = settings.serve.host, settings.serve.port
    sockets = bind(host, port)
    # Until Trio handles it, SIGTERM ends us too the way that tidies up.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with pidfile(environment.pidfile, host=host, port=port):
        resolve_or_pull(default_model(settings.serve.default_model), store, environment)

        def exit_at_once() -> None:
            environment.pidfile.unlink(missing_ok=True)
            os._exit(1)

        # Here and not above: neither help nor a mistake should wait for Trio, NumPy and the server.
        from hipfire.cli.serving import serve  # noqa: PLC0415

        serve(settings=settings, store=store, sockets=sockets, prewarm=not no_prewarm, exit_at_once=exit_at_once)


def _where(words: Sequence[str], store: Store, ctx: click.Context) -> Where:
    def is_model(word: str) -> bool:
        try:
            store.resolve(word)
        except ModelNotFound:
            return store.registry.find(word) is not None
        return True

    try:
        return read_where(words, is_model)
    except ValueError as error:
        raise click.UsageError(str(error), ctx) from None
