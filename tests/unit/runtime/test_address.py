"""Where a server listens, and who can reach it there."""

from typing import Any

import pytest

from closeknit.runtime.address import Address


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("127.0.0.1:8080", (("127.0.0.1", 8080), True)),
        ("localhost:1", (("localhost", 1), True)),
        ("[::1]:8080", (("::1", 8080), True)),
        (":8443", (("", 8443), False)),
        ("10.0.0.7:8443", (("10.0.0.7", 8443), False)),
        ("operator.example:80", (("operator.example", 80), False)),
    ],
)
def test_addresses(text: str, expected: Any) -> None:
    address = Address.parse(text)
    assert ((address.host, address.port), address.is_loopback) == expected


@pytest.mark.parametrize("text", ["8080", "127.0.0.1", "127.0.0.1:", "127.0.0.1:http", "127.0.0.1:70000"])
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(ValueError, match="is not an address such as"):
        Address.parse(text)
