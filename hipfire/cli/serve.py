"""`hipfire serve`: holds the port, brings the model, and serves until it is told to stop."""

import os
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING

import attrs
import click

from hipfire.catalog.hub_name import PREFIX
from hipfire.catalog.registry import default_model
from hipfire.catalog.store import Store, open_store
from hipfire.cli.downloads import pull_for_request, resolve_or_pull
from hipfire.cli.help import ExampledCommand
from hipfire.cli.logs import log_to_file, log_to_stderr
from hipfire.cli.options import WholeNumber, flag_option, give_flag, setting_option, settings_of
from hipfire.cli.tags import any_tag
from hipfire.cli.where import read_where
from hipfire.config.environment import Environment
from hipfire.config.schema import Serve, Settings
from hipfire.errors import DeviceError, ModelNotFound
from hipfire.lifecycle.detach import Child, ModelState, Report, StartFailed, detach, wait_until_up
from hipfire.lifecycle.endpoint import endpoint_of
from hipfire.lifecycle.notify import Notifier
from hipfire.lifecycle.pidfile import pidfile
from hipfire.lifecycle.port import bind
from hipfire.lifecycle.processes import SERVE, announced
from hipfire.server.hosts import exposure

if TYPE_CHECKING:
    import ssl


_MODEL = "the model needs no option, as in hipfire serve MODEL"
_HOST = "the address stands after the model, as in hipfire serve MODEL 0.0.0.0:8080"
_CONTEXT = "that is --max-seq"
_GPU = "all of a model runs on one device, which --device chooses"
_CONCURRENT = "hipfire config set serve.max_concurrent N does that"

# Options of llama-server, vLLM and the like.
FOREIGN = MappingProxyType(
    {
        "--port": "the port stands after the model, as in hipfire serve MODEL 8080",
        "-p": "the port stands after the model, as in hipfire serve MODEL 8080",
        "--host": _HOST,
        "-m": _MODEL,
        "--model": _MODEL,
        "-c": _CONTEXT,
        "--ctx-size": _CONTEXT,
        "--max-model-len": _CONTEXT,
        "-n": _GPU,  # As -ngl is read.
        "--n-gpu-layers": _GPU,
        "--gpu-layers": _GPU,
        "--parallel": _CONCURRENT,
        "--max-num-seqs": _CONCURRENT,
        "-t": "that is --threads",
        "--api-key": "hipfire config set serve.api_keys KEY does that",
    }
)


def _refuse_more_than_one_device(ctx: click.Context, param: click.Parameter, n_devices: int | None) -> None:
    del ctx, param
    if n_devices is not None and n_devices > 1:
        raise DeviceError(f"--tp {n_devices}: this build runs a model on one device", hint="leave --tp out")


def _note_where(ctx: click.Context, param: click.Parameter, words: Sequence[str]) -> None:
    """Read the words after the command; what they say are settings like those of flags."""
    del param
    store = open_store(ctx.obj)

    def is_model(word: str) -> bool:
        try:
            store.resolve(word)
        except ModelNotFound:
            return store.card_of(word) is not None or word.startswith(PREFIX)
        return True

    try:
        where = read_where(words, is_model)
    except ValueError as error:
        raise click.UsageError(str(error), ctx) from None
    for key, value, name in (
        ("serve.default_model", where.model, "MODEL"),
        ("serve.host", where.host, "HOST"),
        ("serve.port", where.port, "PORT"),
    ):
        if value is not None:
            give_flag(ctx, key, value, name)


@click.command(
    "serve",
    cls=ExampledCommand,
    examples=[
        ("hipfire serve smollm2:135m", "downloaded first if it is not here"),
        ("hipfire serve ./model.gguf 8080", "any GGUF file, on another port"),
        ("hipfire serve smollm2:135m 0.0.0.0:8080", "for everybody who can reach this machine"),
        ("hipfire serve -d --wait", "in the background; comes back when the model is loaded"),
        ("hipfire serve --idle-timeout 0 --max-seq 4096", "stay loaded; at most 4096 tokens a conversation"),
    ],
    foreign=FOREIGN,
)
@click.argument(
    "words",
    nargs=-1,
    metavar="[MODEL] [HOST] [PORT]",
    shell_complete=any_tag,
    callback=_note_where,
    expose_value=False,
)
@setting_option("memory.max_seq", "--max-seq")
@setting_option("memory.kv_cache", "--kv-mode")
@setting_option("serve.idle_timeout", "--idle-timeout")
@setting_option("hardware.device", "--device")
@setting_option("hardware.threads", "--threads")
@click.option(
    "--tp",
    type=WholeNumber(1, 64),
    callback=_refuse_more_than_one_device,
    expose_value=False,
    metavar="N",
    help="Devices to spread a model over. This build uses one: more are refused.",
)
@flag_option("log.format", "json", "--json-logs", help_text="Log one JSON object a line, for programs.")
@click.option("--no-prewarm", is_flag=True, help="Load the model at the first request, not at once.")
@click.option("-d", "--detach", "--background", is_flag=True, help="Go on in the background, once it is up.")
@click.option("--wait", is_flag=True, help="With -d: come back when the model is loaded too.")
@click.pass_context
def command(ctx: click.Context, /, **flags: bool) -> None:
    """Serve a model over HTTP, as OpenAI's API at /v1, until Ctrl-C.

    MODEL is a tag, the name of an installed file, or a path; without one it is HIPFIRE_MODEL or serve.default_model.
    HOST and PORT may be written host:port, [ipv6]:port or just a port. The default is 127.0.0.1:11435, which only
    this machine can reach. For any other set serve.api_keys, and serve.certfile and serve.keyfile for TLS.

    Ctrl-C or SIGTERM lets answers that are under way finish; a second one ends them too.

    With -d it prints the address and exits 0 as soon as the server answers; it logs to serve.log in ~/.hipfire, and
    hipfire stop ends it. A start that fails shows the log's end, exits 1 and leaves nothing running.
    """
    run(plan_of(ctx, **flags), ctx.obj)


@attrs.frozen(kw_only=True)
class Plan:
    """What the command line asks for, checked as far as that goes without doing anything."""

    settings: Settings
    store: Store
    prewarm: bool
    detach: bool
    wait: bool


def plan_of(ctx: click.Context, *, no_prewarm: bool, detach: bool, wait: bool) -> Plan:
    """Read the command line. Raises ConfigError, ModelNotFound, click.UsageError."""
    environment: Environment = ctx.obj
    if wait and (no_prewarm or not detach):
        raise click.UsageError("--wait goes with -d, and not with --no-prewarm", ctx)
    return Plan(
        settings=settings_of(ctx), store=open_store(environment), prewarm=not no_prewarm, detach=detach, wait=wait
    )


def run(plan: Plan, environment: Environment) -> None:
    """Serve, or see a serve in the background through its start. Raises BindError, StartFailed and more."""
    tls = _tls(plan.settings.serve)
    endpoint = endpoint_of(plan.settings.serve)
    model = default_model(plan.settings.serve.default_model)
    sockets = bind(endpoint.host, endpoint.port, home=environment.home)
    # Until Trio handles it, SIGTERM ends us too the way that tidies up.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    report: Report | None = None
    if plan.detach:
        # The download's progress is for whoever waits here.
        with announced(environment.home, SERVE, model=model, endpoint=endpoint):
            resolve_or_pull(model, plan.store, environment, chat_with=plan.settings)
        child = detach(environment.log_file)
        if isinstance(child, Child):
            _see_through(child, sockets, plan)
            return
        report = child
        log_to_file(plan.settings.log, environment.log_file)
    else:
        log_to_stderr(plan.settings.log)
    with (
        announced(
            environment.home,
            SERVE,
            model=model,
            endpoint=endpoint,
            drain_timeout_s=plan.settings.serve.drain_timeout,
        ),
        pidfile(environment.pidfile, endpoint) as remove_pidfile,
    ):
        Notifier(environment.notify_socket).status(f"preparing {model}")
        resolve_or_pull(model, plan.store, environment, chat_with=plan.settings)
        _serve(plan, environment, sockets, tls, remove_pidfile, report)


def _see_through(child: Child, sockets: Sequence[socket.socket], plan: Plan) -> None:
    """Wait until the child is up, and say where."""
    addresses = [listener.getsockname()[0] for listener in sockets]
    for listener in sockets:
        listener.close()
    endpoint = endpoint_of(plan.settings.serve)
    # Here and not above: it takes longer to import than a mistake should take.
    from rich.console import Console  # noqa: PLC0415

    from hipfire.cli.load_bar import LoadBar  # noqa: PLC0415

    model = default_model(plan.settings.serve.default_model)
    try:
        with LoadBar(Console(stderr=True)) as bar:
            wait_until_up(child, endpoint, for_model=plan.wait, on_loading=partial(bar.show, model))
    except StartFailed as error:
        for line in error.lines:
            click.echo(line, err=True)
        raise
    # The child's own warning is in the log, where nobody looks.
    if warning := exposure(addresses, has_keys=bool(plan.settings.serve.api_keys)):
        click.echo(f"warning: {warning}", err=True)
    click.echo(endpoint.url)


def _tls(serve: Serve) -> "ssl.SSLContext | None":
    """What to speak TLS with, if that is asked for. Raises ConfigError."""
    if serve.certfile is None and serve.keyfile is None:
        return None
    # Here and not above: it takes longer to import than all else that comes before the server.
    from hipfire.server.tls import tls_context  # noqa: PLC0415

    return tls_context(serve)


def _serve(
    plan: Plan,
    environment: Environment,
    sockets: Sequence[socket.socket],
    tls: "ssl.SSLContext | None",
    remove_pidfile: Callable[[], None],
    report: Report | None,
) -> None:
    notifier = Notifier(environment.notify_socket)

    reported = -1

    def on_loading(_tag: str, fraction: float) -> None:
        nonlocal reported
        if report is not None and (percent := int(100 * fraction)) > reported:
            reported = percent
            report(percent)

    def on_prewarmed(is_loaded: bool) -> None:
        if report is not None:
            report(ModelState.LOADED if is_loaded else ModelState.FAILED)

    def exit_at_once() -> None:
        remove_pidfile()
        os._exit(1)

    # Here and not above: neither help nor a mistake should wait for Trio, NumPy and the server.
    from hipfire.cli.serving import Setup, serve  # noqa: PLC0415

    serve(
        Setup(
            settings=plan.settings,
            store=plan.store,
            home=environment.home,
            pull=lambda card: pull_for_request(card, plan.store, environment),
            sockets=sockets,
            tls=tls,
            prewarm=plan.prewarm,
            ends_unless_loaded=plan.wait,
            stop_with="Ctrl-C" if report is None else "hipfire stop",
            on_listening=lambda: notifier.ready(f"listening on {endpoint_of(plan.settings.serve).url}"),
            on_loading=on_loading,
            on_stopping=notifier.stopping,
            on_prewarmed=on_prewarmed,
            exit_at_once=exit_at_once,
        )
    )
