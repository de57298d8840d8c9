import threading
from pathlib import Path

import attrs
import pytest
import trio
from chats import HELLO, a_job, events_of, hello, text_of, until
from scripted_service import TINY, scripted_service, some_settings
from trio.testing import wait_all_tasks_blocked

from hipfire.catalog.registry import Card, Part, Registry
from hipfire.catalog.store import Store
from hipfire.errors import DownloadError, ModelNotFound, Unsupported, UnsupportedFile

CARD = Card(
    tag="far:1b",
    aliases=("far",),
    about="",
    license="",
    architecture="llama",
    file="far.gguf",
    nbytes=TINY.stat().st_size,
    quant="",
    context_length=1,
    settings={},
    parts=(Part(package="far", version="1", member="far.gguf", download_nbytes=1),),
)
OTHERS = (
    attrs.evolve(CARD, tag="strange", aliases=(), file="strange.gguf", architecture="mamba"),
    attrs.evolve(CARD, tag="unpublished", aliases=(), file="unpublished.gguf", parts=(), note="nobody has it"),
    attrs.evolve(CARD, tag="base", aliases=(), file="base.gguf", chats=False),
)
ALLOWED = some_settings(serve={"allow_request_pull": True, "default_model": "far"})


@attrs.define
class Index:
    """Where models come from: the download waits for `go`, and does as it is told then."""

    folder: Path
    failure: DownloadError | None = None
    go: threading.Event = attrs.field(factory=threading.Event)
    pulled: list[str] = attrs.field(factory=list)
    cancelled: bool = False

    def pull(self, card: Card) -> None:
        self.pulled.append(card.tag)
        try:
            while not self.go.wait(0.001):
                trio.from_thread.check_cancelled()
        except trio.Cancelled:
            self.cancelled = True
            raise
        if self.failure is not None:
            raise self.failure
        (self.folder / card.file).symlink_to(TINY)


@pytest.fixture
def index(tmp_path: Path) -> Index:
    return Index(tmp_path)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """Has nothing yet."""
    return Store(tmp_path, Registry(cards={card.tag: card for card in (CARD, *OTHERS)}))


async def test_a_model_that_is_asked_for_is_downloaded_once(store: Store, index: Index) -> None:
    answers: list[str] = []

    async def chat(service_name: str) -> None:
        answers.append(text_of(await events_of(service.chat(a_job(model=service_name)))))

    async with scripted_service(store, hello(), settings=ALLOWED, pull=index.pull) as (service, _):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(chat, "far")
            nursery.start_soon(chat, "far:1b")
            await until(lambda: index.pulled == ["far:1b"])
            # Nobody whose model is here would have to wait for it.
            assert service.admission.n_running == 0
            index.go.set()
        assert answers == [HELLO, HELLO]
        assert service.health().model == "far:1b"
        await chat("far")
    assert index.pulled == ["far:1b"]


async def test_it_is_not_without_the_setting_nor_for_what_no_card_has(store: Store, index: Index) -> None:
    async with scripted_service(store, hello(), pull=index.pull) as (service, _):
        with pytest.raises(ModelNotFound, match=r"hipfire pull far:1b"):
            await events_of(service.chat(a_job(model="far")))
    async with scripted_service(store, hello(), settings=ALLOWED, pull=index.pull) as (service, _):
        for name in ("nothing", "unpublished", "/etc/passwd", "hf:owner/repo"):
            with pytest.raises(ModelNotFound):
                await events_of(service.chat(a_job(model=name)))
        with pytest.raises(UnsupportedFile, match="mamba"):
            await events_of(service.chat(a_job(model="strange")))
        # It is a request that must name it.
        with pytest.raises(ModelNotFound):
            await events_of(service.chat(a_job()))
    assert index.pulled == []


async def test_a_download_that_fails_is_an_error_and_the_next_request_tries_again(store: Store, index: Index) -> None:
    index.failure = DownloadError("no space")
    index.go.set()
    async with scripted_service(store, hello(), settings=ALLOWED, pull=index.pull) as (service, _):
        with pytest.raises(DownloadError, match="no space"):
            await events_of(service.chat(a_job(model="far")))
        index.failure = None
        assert text_of(await events_of(service.chat(a_job(model="far")))) == HELLO


async def test_a_client_that_leaves_does_not_end_it(store: Store, index: Index) -> None:
    async with scripted_service(store, hello(), settings=ALLOWED, pull=index.pull) as (service, _):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(events_of, service.chat(a_job(model="far")))
            await until(lambda: bool(index.pulled))
            nursery.cancel_scope.cancel()
        await wait_all_tasks_blocked()
        index.go.set()
        await until((index.folder / "far.gguf").exists)
        assert text_of(await events_of(service.chat(a_job(model="far")))) == HELLO
    assert index.pulled == ["far:1b"]
    assert not index.cancelled


async def test_the_end_of_the_service_ends_it(store: Store, index: Index) -> None:
    async with (
        scripted_service(store, hello(), settings=ALLOWED, pull=index.pull) as (service, _),
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(events_of, service.chat(a_job(model="far")))
        await until(lambda: bool(index.pulled))
        nursery.cancel_scope.cancel()
    assert index.cancelled


async def test_what_cannot_chat_is_not_downloaded(store: Store, index: Index) -> None:
    async with scripted_service(store, hello(), settings=ALLOWED, pull=index.pull) as (service, _):
        with pytest.raises(Unsupported, match="base has no chat template"):
            await service.resolve("base")
