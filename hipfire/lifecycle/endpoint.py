"""Where a serve is reached from its own machine, and how it is spoken to there. Knows no HTTP."""

from pathlib import Path
from typing import TYPE_CHECKING

import attrs

from hipfire.config.schema import Serve
from hipfire.errors import ConfigError

if TYPE_CHECKING:
    import ssl

# What listens on every address is reached on the loopback one.
_REACHED_AT = {"0.0.0.0": "127.0.0.1", "::": "::1"}


@attrs.frozen(kw_only=True)
class Endpoint:
    """What a serve listens on. `certfile`: it speaks TLS, with this certificate."""

    host: str
    port: int
    certfile: str | None = None

    @property
    def reached_at(self) -> str:
        """The host, as a client on this machine calls it."""
        return _REACHED_AT.get(self.host, self.host)

    @property
    def url(self) -> str:
        host = self.reached_at
        scheme = "http" if self.certfile is None else "https"
        return f"{scheme}://[{host}]:{self.port}" if ":" in host else f"{scheme}://{host}:{self.port}"

    def trusting(self) -> "ssl.SSLContext | None":
        """To ask with: takes nobody for the serve who does not have its certificate, whatever names that is made out
        to; a serve is called by its address here. None without TLS. Raises ConfigError.
        """
        if self.certfile is None:
            return None
        # Here and not above: it takes longer to import than most commands take.
        import ssl  # noqa: PLC0415

        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        # The certificate itself is the anchor, be it self-signed or not.
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        try:
            context.load_verify_locations(self.certfile)
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(f"serve.certfile: cannot use {self.certfile}: {error}") from None
        return context


def endpoint_of(serve: Serve) -> Endpoint:
    """What a serve with these settings listens on."""
    certfile = None if serve.certfile is None else str(Path(serve.certfile).expanduser().absolute())
    return Endpoint(host=serve.host, port=serve.port, certfile=certfile)
