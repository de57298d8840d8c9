"""`hipfire list`: the models that are here, or that the registry has."""

import json
import time

import click
from rich.console import Console, JustifyMethod
from rich.markup import escape
from rich.table import Table

from hipfire.catalog.partials import Partial, list_partials
from hipfire.catalog.registry import Card
from hipfire.catalog.store import Listing, open_store
from hipfire.cli.help import ExampledCommand
from hipfire.config.environment import Environment

_PIPE_WIDTH = 500


@click.command(
    "list",
    cls=ExampledCommand,
    examples=[
        ("hipfire list", "what is here"),
        ("hipfire list -r", "what can be pulled"),
        ("hipfire list --json | jq -r '.[].tag'", "the tags, for a script"),
    ],
)
@click.option("-r", "--registry", "remote", is_flag=True, help="The models that can be pulled, in place of those here.")
@click.option("-j", "--json", "as_json", is_flag=True, help="One JSON document, for programs.")
@click.pass_obj
def command(environment: Environment, remote: bool, as_json: bool) -> None:
    """List the models on this machine, or with -r those of the registry.

    A download that is not done is told of too; giving the command again goes on with it.
    """
    store = open_store(environment)
    listings = store.list_installed()
    partials = list_partials(environment.models_dir)
    if remote:
        here = {listing.model.tag for listing in listings}
        cards = [*store.registry.cards.values()]
        if as_json:
            _print_json([_card_json(card, card.tag in here) for card in cards])
        else:
            _print_cards(cards, here)
    elif as_json:
        _print_json([*map(_listing_json, listings), *map(_partial_json, partials)])
    else:
        if listings:
            _print_listings(listings)
        elif not partials:
            click.echo(f"no models in {environment.models_dir} yet; try: hipfire pull smollm2:135m", err=True)
        for partial in partials:
            click.echo(f"{partial.name} {_progress(partial)}", err=True)


def _print_json(rows: list[dict[str, object]]) -> None:
    click.echo(json.dumps(rows, indent=2))


def _listing_json(listing: Listing) -> dict[str, object]:
    details = listing.details
    return {
        "tag": listing.model.tag,
        "aliases": list(listing.model.aliases),
        "path": str(listing.model.path),
        "arch": details and details.architecture,
        "quant": details and details.quant,
        "size_bytes": details and details.nbytes,
        "context_length": details and details.context_length,
        "modified": listing.modified_s,
        "problem": listing.problem,
    }


def _partial_json(partial: Partial) -> dict[str, object]:
    """With the keys of a model that is here but cannot be used."""
    return {
        "tag": partial.name,
        "path": str(partial.folder),
        "arch": None,
        "quant": None,
        "size_bytes": partial.nbytes,
        "context_length": None,
        "modified": int(partial.folder.stat().st_mtime),
        "problem": _progress(partial),
    }


def _progress(partial: Partial) -> str:
    how_far = f"{_megabytes(partial.nbytes)} of {_megabytes(partial.total_nbytes)}"
    if partial.running:
        return f"is being downloaded: {how_far} so far"
    return f"is here in part: {how_far}; hipfire pull {partial.name} goes on, hipfire rm {partial.name} gives it up"


def _card_json(card: Card, installed: bool) -> dict[str, object]:
    return {
        "tag": card.tag,
        "aliases": list(card.aliases),
        "about": card.about,
        "license": card.license,
        "quant": card.quant,
        "size_bytes": card.nbytes,
        "download_bytes": card.download_nbytes,
        "context_length": card.context_length,
        "installed": installed,
        "architecture": card.architecture,
        "runs": card.runs,
        "chats": card.chats,
        "memory_bytes": card.memory_nbytes,
        "note": card.note,
    }


def _print_listings(listings: list[Listing]) -> None:
    table = _table("model", "arch", "quant", ">size", ">context", "changed", "also called")
    for listing in listings:
        details = listing.details
        changed = time.strftime("%Y-%m-%d", time.localtime(listing.modified_s)) if listing.modified_s else ""
        tag, aliases = escape(listing.model.tag), escape(", ".join(listing.model.aliases))
        if details is None:
            state = "broken" if listing.modified_s else "missing"
            table.add_row(tag, f"[red]{state}[/red]", "", "", "", changed, aliases)
        else:
            size, context = _megabytes(details.nbytes), _context(details.context_length)
            table.add_row(tag, escape(details.architecture), details.quant, size, context, changed, aliases)
    _print_table(table)
    for listing in listings:
        if listing.problem is not None:
            click.echo(f"{listing.model.tag} cannot be used: {listing.problem}", err=True)


def _print_cards(cards: list[Card], here: set[str]) -> None:
    table = _table("model", "here", "runs", ">size", ">memory", ">context", "license", "about")
    for card in cards:
        is_here = "yes" if card.tag in here else "no"
        runs = ("yes" if card.chats else "bench only") if card.runs else "not yet"
        size = _megabytes(card.nbytes) if card.nbytes else ""
        memory, context = _megabytes(card.memory_nbytes), _context(card.context_length)
        about = card.about if card.note is None else f"{card.about}; {card.note}"
        table.add_row(card.tag, is_here, runs, size, memory, context, card.license, about)
    _print_table(table)


def _table(*columns: str) -> Table:
    """A table with these headings; one that starts with > is for numbers."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for column in columns:
        justify: JustifyMethod = "right" if column.startswith(">") else "left"
        # A tag is there to be copied: what is narrow makes the others wrap.
        table.add_column(column.removeprefix(">"), justify=justify, no_wrap=column == "model")
    return table


def _print_table(table: Table) -> None:
    console = Console()
    if not console.is_terminal:
        # Whoever reads a pipe wants a model a line.
        console.width = _PIPE_WIDTH
    console.print(table)


def _megabytes(nbytes: int) -> str:
    return f"{nbytes / 1e6:,.0f} MB" if nbytes < 1e9 else f"{nbytes / 1e9:,.1f} GB"


def _context(n_tokens: int) -> str:
    return f"{n_tokens // 1024}K" if n_tokens and n_tokens % 1024 == 0 else str(n_tokens or "")
