"""What a model says of the settings: its own file, its card, and its table in models.toml, each as a layer."""

from collections.abc import Mapping
from contextlib import suppress

from hipfire.catalog.store import InstalledModel
from hipfire.config.layers import checked
from hipfire.config.schema import SETTINGS, Layer, Origin, Settings, Source, Sourced
from hipfire.config.values import BadValue, check
from hipfire.errors import ModelFileError, ModelNotFound, Unsupported
from hipfire.formats.checkpoint import MetaValue
from hipfire.formats.open import open_checkpoint

# The keys are GGUF's, by its specification (gguf-py, `Keys.General.SAMPLING_*`); `formats.huggingface` gives them to
# what generation_config.json says.
_SAMPLING = {
    "general.sampling.temp": "generation.temperature",
    "general.sampling.top_k": "generation.top_k",
    "general.sampling.top_p": "generation.top_p",
    "general.sampling.min_p": "generation.min_p",
    "general.sampling.penalty_repeat": "generation.repeat_penalty",
}

_DIGITS = 6
"""Of a float32, decimal digits that mean something: its 0.6 is 0.60000002384."""


def file_layer(metadata: Mapping[str, MetaValue], *, place: str) -> Layer:
    """What a model's file recommends. What no setting can be is left out: nobody here wrote it, or could correct it."""
    layer = {}
    for name, key in _SAMPLING.items():
        value = metadata.get(name)
        if isinstance(value, float):
            value = float(f"{value:.{_DIGITS}g}")
        try:
            fitting = check(SETTINGS[key], value)
        except BadValue:
            continue
        layer[key] = Sourced(fitting, Source(Origin.MODEL_FILE, place))
    return layer


def read_layers_of(model: InstalledModel) -> list[Layer]:
    """All that is said of the settings for a model, its file included if it is here and can be read.

    Raises ConfigError for a card's value that does not fit.
    """
    layers = given_layers(model)
    with suppress(ModelFileError, ModelNotFound), open_checkpoint(model.path) as checkpoint:
        layers.append(file_layer(checkpoint.metadata, place=str(model.path)))
    return layers


def given_layers(model: InstalledModel) -> list[Layer]:
    """What the model's card and models.toml say of it. Raises ConfigError for a card's value that does not fit."""
    layers: list[Layer] = []
    if model.card is not None:
        source = Source(Origin.CARD, f"the card of {model.card.tag}")
        layers.append({key: checked(key, value, source) for key, value in model.card.settings.items()})
    if model.own is not None:
        layers.append(model.own.settings)
    return layers


def check_chats(model: InstalledModel, settings: Settings) -> None:
    """Raises Unsupported where a card says that its model has no chat template, and no setting gives it one.

    It is for models that are still to be downloaded, so the file is not asked.
    """
    for layer in given_layers(model):
        settings = settings.with_layer(layer)
    if model.card is not None and not model.card.chats and settings.prompt.chat_template is None:
        raise does_not_chat(model.tag)


def does_not_chat(tag: str) -> Unsupported:
    """What to say of a model without a chat template."""
    return Unsupported(
        f"{tag} has no chat template: it was made to continue text, not to chat",
        hint="prompt.chat_template sets one",
    )
