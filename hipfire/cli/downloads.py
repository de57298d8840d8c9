"""A model's download as a person follows it: a bar with bytes and speed on a terminal, a few lines elsewhere."""

import logging
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from hipfire.catalog.hub_name import PREFIX, parse_hub_name
from hipfire.catalog.model_layers import check_chats
from hipfire.catalog.progress import Phase
from hipfire.catalog.pull import make_folder, pull
from hipfire.catalog.registry import Card
from hipfire.catalog.store import InstalledModel, Store
from hipfire.config.environment import Environment
from hipfire.config.schema import Settings
from hipfire.errors import ModelNotFound
from hipfire.lifecycle.processes import DOWNLOAD, announced

log = logging.getLogger("hipfire.cli")


def resolve_or_pull(
    name: str, store: Store, environment: Environment, *, chat_with: Settings | None = None
) -> InstalledModel:
    """The installed model of that name, downloaded first if it is a known tag that is not here.

    With `chat_with` it is wanted for chats with these settings: one that cannot chat is not downloaded.
    Raises ModelNotFound, DownloadError, Unsupported.
    """
    try:
        return store.resolve(name)
    except ModelNotFound:
        if store.card_of(name) is None and not name.startswith(PREFIX):
            raise
        if chat_with is not None and store.card_of(name) is not None:
            check_chats(store.resolve_or_expect(name), chat_with)
        pull_with_progress(find_card(name, store, environment), store, environment)
        return store.resolve(name)


def name_for_serve(name: str, store: Store, environment: Environment, settings: Settings) -> str:
    """What a serve of this machine may call a model, which is downloaded first if it is a known tag.

    A name that means nothing here may mean something there. Raises DownloadError, Unsupported.
    """
    try:
        return resolve_or_pull(name, store, environment, chat_with=settings).tag
    except ModelNotFound:
        return name


def find_card(name: str, store: Store, environment: Environment) -> Card:
    """The card of a tag, or what the hub tells of an `hf:` name. Raises ModelNotFound, DownloadError."""
    hub_name = parse_hub_name(name)
    if hub_name is not None:
        # Here and not above: the hub's library takes a third of a second to import, and most commands need none of it.
        from hipfire.catalog import from_hub  # noqa: PLC0415

        return from_hub.find_card(hub_name, environment.variables)
    card = store.card_of(name)
    if card is None:
        near = store.registry.nearest(name)
        hint = f"did you mean {near}?" if near else "hipfire list -r shows what there is"
        raise ModelNotFound(f"the registry has no model {name!r}", hint=hint)
    return card


def pull_with_progress(card: Card, store: Store, environment: Environment) -> Path:
    """Download a model and show how it goes on stderr. Raises DownloadError."""
    if not store.path_of(card).exists():
        card.check_pullable()
        make_folder(store.models_dir, variables=environment.variables)
    with announced(environment.home, DOWNLOAD, model=card.tag):
        return _pull_with_progress(card, store, environment)


def pull_for_request(card: Card, store: Store, environment: Environment) -> None:
    """Download a model in a worker thread of a serve, with lines in its log; stops when it is cancelled there."""
    # Here and not above: only a serve has Trio.
    from trio.from_thread import check_cancelled  # noqa: PLC0415

    logged = 0

    def on_progress(phase: Phase, done: int, total: int) -> None:
        nonlocal logged
        check_cancelled()
        tenth = 10 * done // total if total and phase is Phase.DOWNLOAD else 0
        if tenth > logged:
            logged = tenth
            log.info("%s: %d %% of %.0f MB", card.tag, 10 * tenth, total / 1e6)

    with announced(environment.home, DOWNLOAD, model=card.tag):
        pull(card, store.models_dir, variables=environment.variables, on_progress=on_progress)


def _pull_with_progress(card: Card, store: Store, environment: Environment) -> Path:
    console = Console(stderr=True)
    if not console.is_terminal:
        console.print(f"downloading {card.tag} ({card.download_nbytes / 1e6:,.0f} MB)", highlight=False, markup=False)
        return pull(card, store.models_dir, variables=environment.variables, on_progress=lambda *_: None)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=None),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(compact=True),
    )
    with Progress(*columns, console=console, transient=True) as progress:
        bars: dict[Phase, TaskID] = {}

        def on_progress(phase: Phase, done: int, total: int) -> None:
            if phase not in bars:
                for bar in bars.values():
                    progress.remove_task(bar)
                bars.clear()
                bars[phase] = progress.add_task(f"{phase.value} {escape(card.tag)}", total=total)
            progress.update(bars[phase], completed=done, total=total)

        return pull(card, store.models_dir, variables=environment.variables, on_progress=on_progress)
