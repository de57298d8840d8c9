"""The exception tree. Every error has a stable `code` and may carry a hint: what to do about it.

Knows no HTTP: `server.problems` maps codes to status lines, `cli` maps them to one line on stderr.
"""

from typing import ClassVar


class HipfireError(Exception):
    """Base of every error that hipfire raises on purpose.

    `message` says what is wrong and where; `hint`, when there is one, says what to do.
    """

    code: ClassVar[str] = "internal_error"

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint else self.message


class ConfigError(HipfireError):
    """A setting, flag or environment variable that cannot be used."""

    code = "config_error"


class ModelFileError(HipfireError):
    """A model file that cannot be used. The subclasses tell the cases apart."""

    code = "bad_model_file"


class NotAModelFile(ModelFileError):
    """The bytes are not of the format that was expected (wrong magic)."""


class TruncatedFile(ModelFileError):
    """The file ends before what its own header promises."""


class CorruptFile(ModelFileError):
    """A count, offset, length or type inside the file makes no sense."""


class UnsupportedFile(ModelFileError):
    """A well-formed file of a version, tensor type, tokenizer or architecture this build lacks."""

    code = "unsupported"


class ModelNotFound(HipfireError):
    """No such model is installed, or it may not be loaded."""

    code = "model_not_found"


class DownloadError(HipfireError):
    """A model could not be fetched; nothing broken is left in place."""

    code = "download_failed"


class BindError(HipfireError):
    """The server cannot listen where it was told to."""

    code = "bind_failed"


class InvalidRequest(HipfireError):
    """A request that cannot be answered as it stands. `param` is the path of the field at fault."""

    code = "invalid_request"

    def __init__(self, message: str, *, param: str | None = None, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.param = param


class InvalidJson(InvalidRequest):
    """The request body is not JSON."""

    code = "invalid_json"


class Unsupported(InvalidRequest):
    """A feature that this model or build does not have."""

    code = "unsupported"


class ContextLengthExceeded(InvalidRequest):
    """The prompt, or the prompt and the tokens asked for, do not fit the context."""

    code = "context_length_exceeded"


class TemplateError(InvalidRequest):
    """The chat template refused the conversation or failed."""


class RequestTooLarge(HipfireError):
    """The request body is over `serve.max_request_bytes`."""

    code = "request_too_large"


class ServerBusy(HipfireError):
    """The queue is full, or the request waited too long in it. `retry_after_s`: when to come again."""

    code = "server_busy"

    def __init__(self, message: str, *, retry_after_s: int, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.retry_after_s = retry_after_s


class EngineUnavailable(HipfireError):
    """The engine process died, hangs or is being restarted."""

    code = "engine_unavailable"


class WireError(HipfireError):
    """A line between server and engine that is no message: one of the two is of another version, or broken."""


class DeviceError(HipfireError):
    """A device that is missing, failed, or lacks what was asked of it."""

    code = "device_error"


class OutOfMemory(DeviceError):
    """A device or the host has not enough memory; the message has what was needed and what is free."""

    code = "out_of_memory"


class BadLogits(DeviceError):
    """A step gave logits that are not finite numbers: the model or a kernel overflowed."""


class DeviceLost(HipfireError):
    """A device failed such that nothing more can be done with it in this process."""

    code = "device_error"


class StepCancelled(HipfireError):
    """A device stopped in the middle of a step because its cancel flag was set."""

    code = "cancelled"
