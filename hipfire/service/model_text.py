"""What the service itself needs of a model's file: the tokenizer and the chat template. Knows no weights."""

from collections.abc import Mapping
from pathlib import Path

import attrs

from hipfire.catalog.model_layers import does_not_chat, file_layer
from hipfire.catalog.store import InstalledModel
from hipfire.config.schema import Layer, Settings
from hipfire.errors import ConfigError
from hipfire.formats.checkpoint import MetaValue
from hipfire.formats.open import open_checkpoint
from hipfire.text.dialects.families import PLAIN, family_of
from hipfire.text.dialects.family import Family
from hipfire.text.dialects.hermes_json import HermesJson
from hipfire.text.prompt import encode_chat
from hipfire.text.template import ChatTemplate
from hipfire.text.tokenizer import Tokenizer


@attrs.frozen(kw_only=True, eq=False)
class ModelText:
    """`family` is how the model writes reasoning and calls.

    `tells_tools`: the template does not, so a system message must say which tools there are and how to call them.
    `recommended` is what the file says of the settings.
    """

    tokenizer: Tokenizer
    template: ChatTemplate
    family: Family = PLAIN
    tells_tools: bool = False
    recommended: Layer = attrs.field(factory=dict)

    @property
    def shown(self) -> dict[int, bytes]:
        """The control tokens that the family writes with, and their texts."""
        control = self.tokenizer.control_texts
        return {control[marker]: marker.encode() for marker in self.family.markers if marker in control}


def read_model_text(model: InstalledModel, settings: Settings) -> ModelText:
    """Read the header of a model's file. Slow (a second for a large vocabulary), so it is for a worker thread.

    Raises ModelFileError's subclasses, ModelNotFound, TemplateError, ConfigError, and Unsupported where there is
    no template.
    """
    with open_checkpoint(model.path) as checkpoint:
        source = checkpoint.metadata.get("tokenizer.chat_template")
        if settings.prompt.chat_template is not None:
            source = _read_template(Path(settings.prompt.chat_template))
        if not isinstance(source, str):
            # Before the tokenizer, which takes seconds for a large vocabulary.
            raise does_not_chat(model.tag)
        tokenizer = Tokenizer.from_metadata(checkpoint.metadata)
        arch = str(checkpoint.metadata.get("general.architecture", ""))
        bos = _token_text(checkpoint.metadata, tokenizer.bos_id)
        eos = _token_text(checkpoint.metadata, checkpoint.metadata.get("tokenizer.ggml.eos_token_id"))
        recommended = file_layer(checkpoint.metadata, place=str(model.path))
    template = ChatTemplate(source, bos_token=bos, eos_token=eos)
    # One that cannot even take this is found out now, and not when it has cost somebody the model that is loaded.
    encode_chat(template, tokenizer, [{"role": "user", "content": "Hello"}])
    family = family_of(card=model.card.family if model.card is not None else None, architecture=arch, template=source)
    tells_tools = family.channels is None and "tools" not in source
    if tells_tools:
        family = attrs.evolve(family, syntax=HermesJson())
    return ModelText(
        tokenizer=tokenizer, template=template, family=family, tells_tools=tells_tools, recommended=recommended
    )


def _token_text(metadata: Mapping[str, MetaValue], token: MetaValue | None) -> str:
    """How a vocabulary spells a token; empty where there is no such token."""
    texts = metadata.get("tokenizer.ggml.tokens")
    if not isinstance(texts, list) or not isinstance(token, int) or not 0 <= token < len(texts):
        return ""
    return str(texts[token])


def _read_template(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"prompt.chat_template: cannot read {path}: {error}") from error
