"""Where a server listens."""

import ipaddress
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Address:
    """Where to listen."""

    host: str  # empty: every interface, of IPv4 and of IPv6
    port: int

    @classmethod
    def parse(cls, text: str) -> "Address":
        """The address of `127.0.0.1:8080`, `[::1]:8080` or `:8080`, which is every interface. Raises ValueError."""
        host, colon, port = text.rpartition(":")
        if not colon or not port.isdecimal() or int(port) > 65_535:
            raise ValueError(f"{text!r} is not an address such as 127.0.0.1:8080 or :8080")
        return cls(host.strip("[]"), int(port))

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach it."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"
