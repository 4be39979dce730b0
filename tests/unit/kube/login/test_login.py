"""A login that is refused is read again from where it came: a file changes, and nobody says so."""

import asyncio
import json
import ssl
import subprocess
import sys
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from closeknit.kube.api import Resource
from closeknit.kube.errors import LoginError, Unauthorized
from closeknit.kube.login.kubeconfig_files import Kubeconfig
from closeknit.kube.login.login import log_in
from closeknit.kube.login.plain_login import PlainLogin
from closeknit.kube.login.pod_login import TOKEN_S, PodLogin
from faults import virtual_time
from faults.http_server import serving
from harness.certificates import Authority

NODES = Resource("", "v1", "nodes", namespaced=False)


def test_a_token_that_was_exchanged_in_its_file_is_used_after_one_refusal(tmp_path: Path) -> None:
    seen: list[str] = []

    async def handler(request: web.Request) -> web.Response:
        seen.append(request.headers["Authorization"])
        return web.json_response({"metadata": {"name": "n"}}, status=200 if seen[-1].endswith("new") else 401)

    async def main() -> None:
        async with serving(handler, tmp_path) as api:
            with pytest.raises(Unauthorized):
                await api.get(NODES, "n")
            kubeconfig = tmp_path / "kubeconfig"
            kubeconfig.write_text(kubeconfig.read_text().replace("secret", "new"))
            await api.get(NODES, "n")

    asyncio.run(main())
    assert seen == ["Bearer secret", "Bearer new"]


def test_a_token_that_was_renewed_meanwhile_refuses_nothing(tmp_path: Path) -> None:
    """Neither a read, nor a stream, nor a write. A token that is the same as before is not shown twice."""
    good, seen = ["secret"], list[str]()

    async def handler(request: web.Request) -> web.StreamResponse:
        seen.append(request.headers["Authorization"].removeprefix("Bearer "))
        body = {"metadata": {"name": "n"}}
        return web.json_response(body, status=200 if seen[-1] in good else 401)

    async def main() -> None:
        async with serving(handler, tmp_path) as api:
            kubeconfig = tmp_path / "kubeconfig"

            def renew(token: str) -> None:
                kubeconfig.write_text(kubeconfig.read_text().replace(good[0], token))
                good[0] = token

            await api.get(NODES, "n")
            renew("second")
            await api.get(NODES, "n")
            renew("third")
            assert [piece async for piece in api.pieces("/log", {})]
            renew("fourth")
            await api.create(NODES, {})
            good[0] = "of-another"
            with pytest.raises(Unauthorized):
                await api.get(NODES, "n")

    asyncio.run(main())
    assert seen == ["secret", "secret", "second", "second", "third", "third", "fourth", "fourth"]


def test_what_may_be_sent_for_a_moment_alone_is_not_sent_again(tmp_path: Path) -> None:
    """A leader's write: once the login is renewed another one may lead."""
    seen: list[str] = []

    async def handler(request: web.Request) -> web.Response:
        seen.append(request.headers["Authorization"])
        kubeconfig = tmp_path / "kubeconfig"
        kubeconfig.write_text(kubeconfig.read_text().replace("secret", "new"))
        return web.json_response({}, status=401)

    async def main() -> None:
        async with serving(handler, tmp_path, sent_within_s=1.0) as api:
            with pytest.raises(Unauthorized):
                await api.create(NODES, {})

    asyncio.run(main())
    assert seen == ["Bearer secret"]


@pytest.fixture
def mount(tmp_path: Path) -> Path:
    """What the kubelet mounts into a Pod."""
    (tmp_path / "ca.crt").write_bytes(Authority().certificate)
    (tmp_path / "token").write_text("first\n")
    return tmp_path


POD = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}


def test_a_pod_logs_in_by_its_token_which_is_read_once_a_minute_and_after_a_refusal(mount: Path) -> None:
    async def main() -> None:
        login = PodLogin(POD, mount)
        assert (login.host, await login.authorization()) == ("https://10.0.0.1:443", "Bearer first")
        (mount / "token").write_text("second")
        assert await login.authorization() == "Bearer first"
        await login.renew()
        assert await login.authorization() == "Bearer second"
        (mount / "token").write_text("third")
        await asyncio.sleep(TOKEN_S)
        assert await login.authorization() == "Bearer third"

    virtual_time.run(main())


def test_a_pod_of_a_cluster_of_ipv6(mount: Path) -> None:
    assert PodLogin(POD | {"KUBERNETES_SERVICE_HOST": "fd00::1"}, mount).host == "https://[fd00::1]:443"


@pytest.mark.parametrize(
    ("file", "content", "words"),
    [
        ("token", "", "holds no token"),
        ("token", "a\nb", "holds no token"),
        ("ca.crt", "", "is no certificate"),
        ("ca.crt", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", "is no certificate"),
    ],
)
def test_a_pod_with_torn_files_says_so(file: str, content: str, words: str, mount: Path) -> None:
    (mount / file).write_text(content)
    with pytest.raises(LoginError, match=words):
        PodLogin(POD, mount)


def test_a_pod_without_a_service_account_says_so(mount: Path) -> None:
    (mount / "token").unlink()
    with pytest.raises(OSError, match="token"):
        PodLogin(POD, mount)
    with pytest.raises(LoginError, match="do not name an API server"):
        PodLogin({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, mount)


def test_a_pod_needs_no_library_for_kubeconfigs() -> None:
    """Which an agent of 80 MB has no room for."""
    program = "import closeknit.kube.http.http_api, closeknit.kube.login.pod_login, sys; "
    program += "print('kubernetes' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", program], text=True) == "False\n"


def kubeconfig(file: Path, current: str | None = None, **contexts: str) -> Path:
    """One file with a context, a cluster and a user for each of these names; the value is the server, and the token and
    the namespace are called after the file."""
    folder = file.parent
    folder.mkdir(exist_ok=True)
    certificate = {"certificate-authority": "ca.crt"}
    (folder / "ca.crt").write_bytes(Authority().certificate)
    (folder / "token").write_text(f"of-{file.name}")
    config: dict[str, Any] = {
        "contexts": [
            {"name": name, "context": {"cluster": name, "user": name, "namespace": f"in-{file.name}"}}
            for name in contexts
        ],
        "clusters": [{"name": name, "cluster": {"server": server, **certificate}} for name, server in contexts.items()],
        "users": [{"name": name, "user": {"tokenFile": "token"}} for name in contexts],
    }
    file.write_text(json.dumps(config if current is None else {**config, "current-context": current}))
    return file


def logged_in(
    environment: str | None, monkeypatch: pytest.MonkeyPatch, *, file: Path | None = None, context: str | None = None
) -> tuple[str, str | None, str]:
    """Host, who asks, and the namespace."""
    if environment is None:
        monkeypatch.delenv("KUBECONFIG", raising=False)
    else:
        monkeypatch.setenv("KUBECONFIG", environment)

    async def main() -> tuple[str, str | None, str]:
        login = await log_in(file, context)
        try:
            return login.host, await login.authorization(), login.namespace
        finally:
            login.close()

    return asyncio.run(main())


def test_several_kubeconfigs_are_one_as_kubectl_merges_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """client-go's loader: of a name, and of current-context, the first file that says something counts."""
    one = kubeconfig(tmp_path / "1" / "one", "", a="https://a-of-one", b="https://b-of-one")
    two = kubeconfig(tmp_path / "2" / "two", "b", b="https://b-of-two", c="https://c-of-two")
    three = kubeconfig(tmp_path / "3" / "three", "c", c="https://c-of-three")
    empty, missing = tmp_path / "empty", tmp_path / "missing"
    empty.touch()
    given = f"{missing}:{empty}::{one}:{one}:{two}:{three}"
    assert logged_in(given, monkeypatch) == ("https://b-of-one", "Bearer of-one", "in-one")
    assert logged_in(given, monkeypatch, context="c") == ("https://c-of-two", "Bearer of-two", "in-two")
    assert logged_in(f"{three}:{one}:{two}", monkeypatch) == ("https://c-of-three", "Bearer of-three", "in-three")
    assert logged_in(given, monkeypatch, file=three)[0] == "https://c-of-three"


def test_a_path_is_below_the_folder_of_its_own_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the file itself is named by a relative path, and that of a command with a slash."""
    kubeconfig(tmp_path / "1" / "one", "a", a="https://a")
    two = kubeconfig(tmp_path / "2" / "two", None, b="https://b")
    plugin = tmp_path / "2" / "plugin"
    status = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {"token": "made"}}
    plugin.write_text(f"#!/bin/sh\necho '{json.dumps(status)}'\n")
    plugin.chmod(0o755)
    config = json.loads(two.read_text())
    exec_plugin = {"apiVersion": status["apiVersion"], "command": "./plugin", "interactiveMode": "Never"}
    config["users"][0]["user"] = {"exec": exec_plugin}
    two.write_text(json.dumps(config))
    monkeypatch.chdir(tmp_path / "1")
    assert logged_in("one:../2/two", monkeypatch)[1] == "Bearer of-one"
    assert logged_in("one:../2/two", monkeypatch, context="b")[1] == "Bearer made"


def test_without_a_kubeconfig_it_is_the_one_at_home_and_then_the_pods_own_account(
    tmp_path: Path, mount: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("closeknit.kube.login.pod_login.PodLogin.__init__.__defaults__", (mount,))
    monkeypatch.setattr("closeknit.kube.login.pod_login.namespace_of.__defaults__", (mount,))
    (mount / "namespace").write_text("mounted\n")
    for name, value in POD.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("HOME", str(tmp_path))
    of_pod = ("https://10.0.0.1:443", "Bearer first", "mounted")
    assert logged_in(None, monkeypatch) == of_pod
    assert logged_in(str(tmp_path / "missing"), monkeypatch) == of_pod
    (tmp_path / ".kube").mkdir()
    at_home = kubeconfig(tmp_path / ".kube" / "config", "a", a="https://a")
    assert logged_in(None, monkeypatch)[0] == "https://a"
    config = json.loads(at_home.read_text())
    del config["contexts"][0]["context"]["namespace"]
    at_home.write_text(json.dumps(config))
    assert logged_in(None, monkeypatch)[2] == "mounted"  # as kubectl in a Pod
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST")
    assert logged_in(None, monkeypatch)[2] == "default"


@pytest.mark.parametrize(
    ("current", "context", "words"),
    [
        (None, None, "one has no current-context; it has a, b, one of which --context can name"),
        ("z", None, "one has no context z; it has a, b, one of which --context can name"),
        ("a", "z", "one has no context z; it has a, b, one of which --context can name"),
    ],
)
def test_a_context_that_is_not_there_is_refused_with_those_that_are(
    current: str | None, context: str | None, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = kubeconfig(tmp_path / "one", current, a="https://a", b="https://b")
    with pytest.raises(LoginError, match=words):
        logged_in(str(one), monkeypatch, context=context)


def test_one_torn_kubeconfig_of_several_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = kubeconfig(tmp_path / "one", "a", a="https://a")
    (tmp_path / "torn").write_text("a: [b")
    with pytest.raises(LoginError, match=f"^{tmp_path / 'torn'} is no kubeconfig that can be used: while parsing"):
        logged_in(f"{one}:{tmp_path / 'torn'}", monkeypatch)


PLAIN = {
    "a token": ({"token": "t"}, "Bearer t"),
    "a file with one": ({"token": "old", "tokenFile": "token"}, "Bearer from-file"),
    "nothing": ({}, None),
}
OTHERS: dict[str, dict[str, Any]] = {
    "a provider": {"auth-provider": {"name": "oidc"}},
    "a password": {"username": "a", "password": "b"},
    "somebody else": {"token": "t", "as": "admin"},
}


def kubeconfig_of(user: dict[str, Any], folder: Path, **cluster: Any) -> Path:
    """One context, in namespace ml."""
    (folder / "token").write_text("from-file\n")
    body = {
        "current-context": "a",
        "contexts": [{"name": "a", "context": {"cluster": "c", "user": "u", "namespace": "ml"}}],
        "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1/", **cluster}}],
        "users": [{"name": "u", "user": user}],
    }
    file = folder / "kubeconfig"
    file.write_text(json.dumps(body))
    return file


@pytest.mark.parametrize(("user", "said"), PLAIN.values(), ids=PLAIN.keys())
def test_a_context_that_says_all_by_itself_needs_no_library(
    user: dict[str, Any], said: str | None, tmp_path: Path
) -> None:
    file = kubeconfig_of(user, tmp_path, **{"tls-server-name": "api", "proxy-url": "http://proxy:1"})

    async def main() -> None:
        login = await log_in(file)
        assert type(login).__name__ == "PlainLogin"
        assert (login.host, login.namespace) == ("https://127.0.0.1:1", "ml")
        assert (login.server_name, login.proxy) == ("api", "http://proxy:1")
        assert await login.authorization() == said

    asyncio.run(main())


@pytest.mark.parametrize("user", OTHERS.values(), ids=OTHERS.keys())
def test_a_context_that_asks_for_more_is_for_the_library(user: dict[str, Any], tmp_path: Path) -> None:
    read = Kubeconfig.of([kubeconfig_of(user, tmp_path)], None)
    assert PlainLogin.of(read, "default") is None


@pytest.mark.parametrize("field", ["as", "as-groups"])
def test_who_acts_as_another_is_not_asked_for_as_himself(field: str, tmp_path: Path) -> None:
    """He may do more than the one he acts as; the library leaves these fields out."""
    file = kubeconfig_of({"token": "t", field: ["viewers"] if field == "as-groups" else "viewer"}, tmp_path)
    words = rf"^user u of the kubeconfig acts as another one \({field}\), which closeknit does not do: name a context"
    with pytest.raises(LoginError, match=words):
        asyncio.run(log_in(file))


def test_a_certificate_of_ones_own_and_a_server_that_is_not_checked(tmp_path: Path) -> None:
    pair = Authority().client("somebody")
    data = {"client-certificate-data": pair.public, "client-key-data": pair.private}
    user = {name: b64encode(content).decode() for name, content in data.items()}
    read = Kubeconfig.of([kubeconfig_of(user, tmp_path, **{"insecure-skip-tls-verify": True})], None)
    login = PlainLogin.of(read, "default")
    assert login is not None
    assert (login.tls.verify_mode, login.tls.check_hostname) == (ssl.CERT_NONE, False)
    with pytest.raises(LoginError, match="is no kubeconfig that can be used"):
        torn = {**user, "client-key-data": user["client-certificate-data"]}
        PlainLogin.of(Kubeconfig.of([kubeconfig_of(torn, tmp_path)], None), "default")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "the token file .*/of-me cannot be read: No such file"),
        (b"", "the token file .*/of-me holds no token"),
        (b"two\nlines", "the token file .*/of-me holds no token"),
        (b"\xff\xfe", "the token file .*/of-me holds no token"),
        (b"x" * (1 << 21), "the token file .*/of-me holds no token"),
    ],
    ids=["gone", "empty", "two lines", "no text", "2 MiB"],
)
def test_a_token_file_without_a_token_is_named_before_any_request(
    content: bytes | None, words: str, tmp_path: Path
) -> None:
    if content is not None:
        (tmp_path / "of-me").write_bytes(content)
    with pytest.raises(LoginError, match=words):
        asyncio.run(log_in(kubeconfig_of({"tokenFile": "of-me"}, tmp_path)))


def test_a_token_whose_file_vanishes_is_used_until_it_is_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As kubectl: what exchanges it may remove it before it writes the next one."""

    async def main() -> None:
        login = await log_in(kubeconfig_of({"tokenFile": "token"}, tmp_path))
        (tmp_path / "token").unlink()
        await asyncio.sleep(TOKEN_S + 1)
        assert await login.authorization() == "Bearer from-file"
        assert "cannot be read: No such file or directory; the token that it held is used on" in caplog.text
        await login.renew()
        with pytest.raises(LoginError, match=r"the token file .*/token cannot be read: No such file"):
            await login.authorization()
        (tmp_path / "token").write_text("next")
        assert await login.authorization() == "Bearer next"

    virtual_time.run(main())


@pytest.mark.parametrize("field", ["client-certificate", "certificate-authority"])
def test_a_file_of_a_certificate_that_is_gone_is_named(field: str, tmp_path: Path) -> None:
    of_cluster = field == "certificate-authority"
    file = kubeconfig_of({} if of_cluster else {field: "gone"}, tmp_path, **({field: "gone"} if of_cluster else {}))
    with pytest.raises(LoginError, match=f"^the {field} {tmp_path}/gone cannot be read: No such file or directory$"):
        asyncio.run(log_in(file))
