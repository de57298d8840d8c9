"""The server's side of TLS: its certificate and key, checked before anything listens. Knows no sockets."""

import ssl
from pathlib import Path

from hipfire.config.schema import Serve
from hipfire.errors import ConfigError

_PROTOCOLS = ("h2", "http/1.1")


def tls_context(serve: Serve) -> ssl.SSLContext | None:
    """What to speak TLS with; None where no certificate is set.

    Raises ConfigError where the two files are not a certificate and its key, and says which of them is at fault.
    """
    if serve.certfile is None and serve.keyfile is None:
        return None
    if serve.certfile is None:
        raise ConfigError("serve.keyfile needs serve.certfile", hint="set both, or neither for plain HTTP")
    if serve.keyfile is None:
        raise ConfigError("serve.certfile needs serve.keyfile", hint="set both, or neither for plain HTTP")
    cert, key = Path(serve.certfile).expanduser(), Path(serve.keyfile).expanduser()
    _check("serve.certfile", cert, "CERTIFICATE")
    _check("serve.keyfile", key, "PRIVATE KEY")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    # HTTP/2 forbids anything older.
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(_PROTOCOLS)
    try:
        # Without a function for it OpenSSL would ask the terminal for the password.
        context.load_cert_chain(cert, key, password=_refuse_password)
    except ssl.SSLError as error:
        raise _unusable(cert, key, error) from None
    return context


def _check(name: str, path: Path, what: str) -> None:
    """Raise ConfigError unless the file can be read and has a PEM block of this kind."""
    try:
        text = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{name}: cannot read {path}: {error.strerror}") from None
    if f"{what}-----".encode() not in text:
        raise ConfigError(
            f"{name}: there is no {what.lower()} in {path}", hint=f"it must be PEM: -----BEGIN {what}----- and so on"
        )


def _refuse_password() -> str:
    raise ConfigError("serve.keyfile: the key is encrypted", hint="openssl pkey -in KEY -out KEY.plain decrypts it")


def _unusable(cert: Path, key: Path, error: ssl.SSLError) -> ConfigError:
    if error.reason == "KEY_VALUES_MISMATCH":
        return ConfigError(f"serve.keyfile: {key} is not the key of the certificate in {cert}")
    return ConfigError(
        f"serve.certfile, serve.keyfile: {cert} and {key} cannot be used: {error.reason or error}",
        hint="openssl x509 -in CERT -noout -text and openssl pkey -in KEY -noout tell which one is damaged",
    )
