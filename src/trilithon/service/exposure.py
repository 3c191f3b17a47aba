"""Decides on which address the service may listen, and under which names it answers."""

import ipaddress
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from trilithon.errors import FileUnreadable, InvalidSetting
from trilithon.service.private_files import check_private

LOOPBACK: Final = "127.0.0.1"
ANY: Final = ("0.0.0.0", "::")  # noqa: S104 - to tell it apart


@dataclass(frozen=True)
class Exposure:
    """Where the service listens. `names` are those under which clients reach it."""

    address: str = LOOPBACK
    port: int = 0
    certificate: Path | None = None
    key: Path | None = None
    names: tuple[str, ...] = ()
    insecure: bool = False

    @property
    def public(self) -> bool:
        """Whether others than this machine can reach it."""
        try:
            return not ipaddress.ip_address(self.address).is_loopback
        except ValueError:
            return self.address != "localhost"

    @property
    def tls(self) -> bool:
        return self.certificate is not None

    @property
    def hosts(self) -> tuple[str, ...]:
        """The names to which it answers."""
        own = (socket.gethostname(), socket.getfqdn()) if self.address in ANY else (self.address,)
        return (LOOPBACK, "localhost", "[::1]", *(own if self.public else ()), *self.names)

    def check_files(self) -> None:
        """Refuses a certificate without a key, and a key that others can read."""
        if (self.certificate is None) != (self.key is None):
            raise InvalidSetting(
                "TLS needs a certificate and its key.", "Give --certificate and --key."
            )
        if self.certificate is not None and self.key is not None:
            if not self.certificate.is_file():
                raise FileUnreadable(f"--certificate: {self.certificate} cannot be read.")
            check_private(self.key, "--key")

    def check(self, *, has_tokens: bool) -> None:
        """Refuses a public address that is not protected, unless that was asked for."""
        self.check_files()
        if not self.public or self.insecure:
            return
        missing = []
        if not self.tls:
            missing.append("TLS (--certificate and --key)")
        if not has_tokens:
            missing.append("tokens (`trilithon token create`, with a daemon on loopback)")
        if missing:
            raise InvalidSetting(
                f"Others can reach {self.address}, and there is no {' and no '.join(missing)}.",
                "Add what is missing. --insecure serves without it: whoever listens can read "
                "tokens and data.",
            )
