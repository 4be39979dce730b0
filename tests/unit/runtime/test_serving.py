"""The web server over TLS: with a certificate of its own, or with files that are renewed."""

import asyncio
import logging
import os
import ssl
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from closeknit.runtime import serving, turnstile
from closeknit.runtime.address import Address
from closeknit.runtime.serving import Certificate, CertificateError, MountedCertificate, OwnCertificate
from closeknit.runtime.web import WebServer
from harness.certificates import Authority, KeyPair

REQUEST = b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n"


class Well:
    """A process without faults."""

    def faults(self) -> list[str]:
        return []

    def gaps(self) -> list[str]:
        return []


def unverified() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def trusting(authority: Authority) -> ssl.SSLContext:
    return ssl.create_default_context(cadata=authority.certificate.decode())


def put(folder: Path, pair: KeyPair) -> Path:
    (folder / "tls.crt").write_bytes(pair.public)
    (folder / "tls.key").write_bytes(pair.private)
    return folder


def served(certificate: Certificate, story: Callable[[int], Coroutine[Any, Any, Any]]) -> Any:
    async def main() -> Any:
        server = WebServer(Address("127.0.0.1", 0), Well(), CollectorRegistry(), None, certificate=certificate)
        await server.start()
        try:
            return await story(server.port)
        finally:
            await server.stop()

    return asyncio.run(main())


async def asked(port: int, context: ssl.SSLContext | None, sent: bytes = REQUEST) -> bytes:
    """What is answered; empty where the connection ends without a word."""
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    except OSError:
        return b""
    return await _answer(reader, writer, sent)


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, sent: bytes) -> bytes:
    try:
        writer.write(sent)
        async with asyncio.timeout(5):
            return await reader.read()
    except OSError:
        return b""
    finally:
        writer.close()


def test_with_a_certificate_of_its_own_nothing_is_said_in_the_clear() -> None:
    async def story(port: int) -> tuple[bytes, bytes]:
        return await asked(port, unverified()), await asked(port, None)

    async def own() -> OwnCertificate:
        return await OwnCertificate.made()

    secured, plain = served(asyncio.run(own()), story)
    assert secured.startswith(b"HTTP/1.1 200") and secured.endswith(b"ok")
    assert not plain.startswith(b"HTTP")


def test_two_processes_have_two_keys() -> None:
    async def made() -> list[bytes]:
        async def shown(port: int) -> bytes:
            _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=unverified())
            found: bytes = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
            writer.close()
            return found

        return [await asyncio.to_thread(served, await OwnCertificate.made(), shown) for _ in range(2)]

    one, other = asyncio.run(made())
    assert one != other


def test_a_scraper_that_checks_finds_the_site_s_certificate(tmp_path: Path) -> None:
    authority = Authority()
    certificate = MountedCertificate(put(tmp_path, authority.server(["127.0.0.1"])))

    async def story(port: int) -> tuple[bytes, bytes]:
        return await asked(port, trusting(authority)), await asked(port, trusting(Authority()))

    known, stranger = served(certificate, story)
    assert (known[:12], stranger) == (b"HTTP/1.1 200", b"")


def test_a_renewed_certificate_is_shown_and_a_broken_one_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(serving, "LOOK_AGAIN_S", 0.0)
    old, new = Authority(), Authority()
    certificate = MountedCertificate(put(tmp_path, old.server(["127.0.0.1"])))

    async def story(port: int) -> list[bytes]:
        found = [await asked(port, trusting(old))]
        (tmp_path / "tls.key").write_text("half written")
        found.append(await asked(port, trusting(old)))
        put(tmp_path, new.server(["127.0.0.1"]))
        os.utime(tmp_path / "tls.crt", (1, 1))  # however soon the next change came
        return [*found, await asked(port, trusting(new)), await asked(port, trusting(old))]

    assert [bool(each) for each in served(certificate, story)] == [True, True, True, False]
    assert len([record for record in caplog.records if "not renewed" in record.message]) == 1


@pytest.mark.parametrize("file", ["tls.crt", "tls.key"])
@pytest.mark.parametrize("content", [None, b"", b"no PEM", b"\xff" * 10_000])
def test_files_that_cannot_be_used_are_refused_in_one_sentence(
    tmp_path: Path, file: str, content: bytes | None
) -> None:
    put(tmp_path, Authority().server(["a"]))
    if content is None:
        (tmp_path / file).unlink()
    else:
        (tmp_path / file).write_bytes(content)
    with pytest.raises(CertificateError, match=r"it wants tls.crt and tls.key, as PEM, that belong together"):
        MountedCertificate(tmp_path)


def test_a_key_of_another_certificate_is_refused(tmp_path: Path) -> None:
    put(tmp_path, Authority().server(["a"]))
    (tmp_path / "tls.key").write_bytes(Authority().server(["a"]).private)
    with pytest.raises(CertificateError):
        MountedCertificate(tmp_path)


def test_who_begins_a_handshake_and_does_not_go_on_is_shown_the_turnstile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """And all those together keep nobody out."""
    authority = Authority()
    certificate = MountedCertificate(put(tmp_path, authority.server(["127.0.0.1"])))
    monkeypatch.setattr(turnstile, "CONNECTION_S", 1.0)
    beginning = (b"", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"GET / HTTP/1.1\r\n\r\n")

    async def story(port: int) -> tuple[bytes, list[bytes]]:
        crowd = [
            asyncio.create_task(_held(port, beginning[number % len(beginning)]))
            for number in range(2 * turnstile.CONNECTIONS)
        ]
        await asyncio.sleep(0.2)
        answer = await asked(port, trusting(authority))
        return answer, await asyncio.gather(*crowd)

    async def _held(port: int, sent: bytes) -> bytes:
        held = await asyncio.open_connection("127.0.0.1", port, local_addr=("127.0.0.2", 0))
        return await _answer(*held, sent)

    answer, crowd = served(certificate, story)
    assert answer.startswith(b"HTTP/1.1 200")
    assert not any(each.startswith(b"HTTP") for each in crowd)
    assert not [record for record in caplog.records if record.levelno > logging.INFO]


def test_a_request_that_comes_with_the_end_of_the_handshake_is_answered(tmp_path: Path) -> None:
    authority = Authority()
    certificate = MountedCertificate(put(tmp_path, authority.server(["127.0.0.1"])))

    async def story(port: int) -> list[bytes]:
        return list(await asyncio.gather(*(asked(port, trusting(authority)) for _ in range(30))))

    assert all(each.startswith(b"HTTP/1.1 200") for each in served(certificate, story))
