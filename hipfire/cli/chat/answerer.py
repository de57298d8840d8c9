"""A serve as whoever answers a chat: found, or started in the background. Knows no terminal but for saying so."""

from collections.abc import Sequence
from typing import Any

import click

from hipfire.catalog.registry import default_model
from hipfire.catalog.store import Store
from hipfire.cli.background import start_serve
from hipfire.cli.downloads import name_for_serve
from hipfire.cli.key import key_of
from hipfire.cli.question import Listener, Outcome, Turn, question_of
from hipfire.cli.remote import ServeFailed, ask_serve, find_serve, read_models
from hipfire.config.environment import Environment
from hipfire.config.schema import Settings
from hipfire.errors import HipfireError, ModelNotFound
from hipfire.lifecycle.endpoint import Endpoint
from hipfire.lifecycle.health import read_health


class ServeAnswerer:
    """Asks the serve at an endpoint, with what was set for this run."""

    def __init__(self, endpoint: Endpoint, *, environment: Environment, settings: Settings, store: Store) -> None:
        self._endpoint = endpoint
        self._environment = environment
        self._settings = settings
        self._store = store
        self._key = key_of(settings)
        self._context_lengths: dict[str, int] = {}

    def ask(self, model: str, turns: Sequence[Turn], listener: Listener) -> Outcome:
        question = question_of(self._settings, model=model, turns=turns)
        return ask_serve(self._endpoint, question, listener, stream=True, key=self._key)

    def find(self, name: str) -> str:
        if not self._store.is_elsewhere(name):
            model = name_for_serve(name, self._store, self._environment, self._settings)
            if model not in {one["id"] for one in self._served()}:
                # Raises, where the name means nothing here either.
                self._store.resolve(model)
            return model
        # A serve loads no file that a request names by path, unless it was started with it.
        model = self._store.resolve(name).tag
        if model not in {one["id"] for one in self._served()}:
            raise ModelNotFound(
                f"the serve at {self._endpoint.url} was started with another model than {name}",
                hint="hipfire restart -d with the path starts it with this one",
            )
        return model

    def first_model(self) -> str:
        """The model that is loaded, else the one that would be."""
        loaded = [str(one["id"]) for one in self._served() if one["hipfire"]["loaded"]]
        return loaded[0] if loaded else self.find(default_model(self._settings.serve.default_model))

    def is_loaded(self, model: str) -> bool:
        health = read_health(self._endpoint)
        return health is not None and health.get("model") == model

    def context_length(self, model: str) -> int:
        if model not in self._context_lengths:
            try:
                told = [one["hipfire"]["context_length"] for one in self._served() if one["id"] == model]
            except HipfireError:
                # Whoever asks it next is told.
                return 0
            self._context_lengths[model] = int(told[0]) if told else 0
        return self._context_lengths[model]

    def models(self) -> list[str]:
        return [listing.model.tag for listing in self._store.list_installed()]

    def _served(self) -> list[dict[str, Any]]:
        return read_models(self._endpoint, key=self._key)


def reach_serve(environment: Environment, settings: Settings, store: Store, model: str | None) -> ServeAnswerer:
    """The healthy serve of this machine; where there is none, one is started with the model.

    Raises ServeFailed; exits where a start failed and has said why.
    """
    endpoint = find_serve(environment, settings)
    if endpoint is None:
        url = start_serve(environment, model)
        click.echo(f"started a server at {url}; it goes on until: hipfire stop", err=True)
        endpoint = find_serve(environment, settings)
    if endpoint is None:
        raise ServeFailed("the serve that was started is gone", hint=f"its log: {environment.log_file}")
    return ServeAnswerer(endpoint, environment=environment, settings=settings, store=store)
