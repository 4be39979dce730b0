"""HttpApi against a small HTTP server that says what an API server, or something in its place, might say."""

import asyncio
import json
import socket
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from closeknit.kube.api import Api, Key, Resource
from closeknit.kube.errors import (
    AlreadyExists,
    ApiError,
    Conflict,
    Forbidden,
    Gone,
    Invalid,
    NotFound,
    StatusCause,
    TooLarge,
    TooManyRequests,
    Transient,
    Unauthorized,
    Unavailable,
    error_from_status,
)
from closeknit.kube.http.http_api import HttpApi
from faults.http_server import Handler, serving, write_kubeconfig

PODS = Resource("", "v1", "pods")
JOBS = Resource("closeknit.dev", "v1alpha1", "trainingjobs")
NODES = Resource("", "v1", "nodes", namespaced=False)


def status(code: int, reason: str, message: str, **details: Any) -> bytes:
    body = {
        "kind": "Status",
        "status": "Failure",
        "code": code,
        "reason": reason,
        "message": message,
        "details": details,
    }
    return json.dumps(body).encode()


@pytest.mark.parametrize(
    ("resource", "at", "path"),
    [
        pytest.param(PODS, (), "/api/v1/pods", id="all of a core kind"),
        pytest.param(JOBS, ("ml",), "/apis/closeknit.dev/v1alpha1/namespaces/ml/trainingjobs", id="one namespace"),
        pytest.param(
            JOBS, ("ml", "j", "status"), "/apis/closeknit.dev/v1alpha1/namespaces/ml/trainingjobs/j/status", id="sub"
        ),
        pytest.param(NODES, (None, "n1"), "/api/v1/nodes/n1", id="cluster-scoped"),
        pytest.param(
            NODES, (None, "../x?y"), "/api/v1/nodes/..%2Fx%3Fy", id="a name that is no name stays in its place"
        ),
    ],
)
def test_a_resource_gives_its_path(resource: Resource, at: tuple[str | None, ...], path: str) -> None:
    assert resource.path(*at) == path


def test_keys_and_resources_print_as_kubectl_says_them() -> None:
    assert [str(Key("ml", "j")), str(Key("", "n1")), str(PODS), str(JOBS)] == [
        "ml/j",
        "n1",
        "pods",
        "trainingjobs.closeknit.dev",
    ]


@pytest.mark.parametrize(
    ("code", "body", "kind"),
    [
        pytest.param(400, status(400, "BadRequest", "m"), Invalid, id="400"),
        pytest.param(401, status(401, "Unauthorized", "m"), Unauthorized, id="401"),
        pytest.param(403, status(403, "Forbidden", "m"), Forbidden, id="403"),
        pytest.param(404, status(404, "NotFound", "m"), NotFound, id="404"),
        pytest.param(405, status(405, "MethodNotAllowed", "m"), ApiError, id="another 4xx"),
        pytest.param(409, status(409, "AlreadyExists", "m"), AlreadyExists, id="409 of a taken name"),
        pytest.param(409, status(409, "Conflict", "m"), Conflict, id="409 of an old version"),
        pytest.param(410, status(410, "Expired", "m"), Gone, id="410"),
        pytest.param(0, status(410, "Expired", "m"), Gone, id="410 inside a watch"),
        pytest.param(413, b"m", TooLarge, id="413"),
        pytest.param(422, status(422, "Invalid", "m"), Invalid, id="422"),
        pytest.param(429, status(429, "TooManyRequests", "m"), TooManyRequests, id="429"),
        pytest.param(500, status(500, "InternalError", "m"), Unavailable, id="500"),
        pytest.param(500, status(500, "", "m etcdserver: request is too large"), TooLarge, id="500 of etcd's limit"),
        pytest.param(
            500, status(500, "", "m trying to send message larger than max (2 vs. 1)"), TooLarge, id="500 of gRPC's"
        ),
        pytest.param(502, b"m <html>bad gateway</html>", Unavailable, id="a proxy's page"),
        pytest.param(504, status(504, "Timeout", "m"), Unavailable, id="504"),
    ],
)
def test_an_answer_means_an_error(code: int, body: bytes, kind: type[ApiError]) -> None:
    error = error_from_status(code, body)
    assert type(error) is kind
    assert error.code == (code or 410)
    assert str(error).startswith("m")
    assert isinstance(error, Transient) == (kind in (Unavailable, TooManyRequests))


def test_an_error_keeps_the_causes_and_the_time_to_wait() -> None:
    cause = {"reason": "FieldValueForbidden", "field": "spec.gpus", "message": "gpus is immutable"}
    error = error_from_status(422, status(422, "Invalid", "no", causes=[cause], retryAfterSeconds=2))
    assert error.causes == (StatusCause("FieldValueForbidden", "spec.gpus", "gpus is immutable"),)
    assert error.retry_after_s == 2
    assert str(error_from_status(503, b"")) == "the API server answered 503"


def test_requests_carry_method_query_body_login_and_name(tmp_path: Path) -> None:
    seen: list[tuple[Any, ...]] = []

    async def handler(request: web.Request) -> web.Response:
        text = await request.text()
        seen.append(
            (
                request.method,
                request.raw_path,
                request.headers["Content-Type"] if text else "",
                json.loads(text) if text else None,
            )
        )
        assert request.headers["Authorization"] == "Bearer secret"
        assert request.headers["User-Agent"] == "closeknit-test/1"
        return web.json_response({"metadata": {"resourceVersion": "7", "continue": ""}, "items": None})

    async def main() -> None:
        async with serving(handler, tmp_path) as api:
            await api.get(PODS, "p", namespace="ml")
            page = await api.list(
                PODS,
                continue_token="a/b=",  # noqa: S106 -- not a login
                field_selector="status.phase!=Failed",
                label_selector="x",
            )
            assert (list(page.items), page.resource_version, page.continue_token) == ([], "7", None)
            await api.create(PODS, {"kind": "Pod"}, namespace="ml", dry_run=True)
            await api.json_patch(PODS, "p", [{"op": "remove", "path": "/x"}], namespace="ml", subresource="status")
            await api.apply(NODES, "n", {"kind": "Node"}, field_manager="closeknit-agent")
            await api.put_status(JOBS, "j", {"metadata": {"resourceVersion": "7"}}, namespace="ml")
            await api.delete(PODS, "p", uid="U", namespace="ml")
            await api.delete(PODS, "q", uid="U", namespace="ml", is_forced=True)

    asyncio.run(main())
    options = {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "preconditions": {"uid": "U"},
        "propagationPolicy": "Background",
    }
    job = "/apis/closeknit.dev/v1alpha1/namespaces/ml/trainingjobs/j"
    assert seen == [
        ("GET", "/api/v1/namespaces/ml/pods/p", "", None),
        (
            "GET",
            "/api/v1/pods?limit=500&continue=a%2Fb%3D&fieldSelector=status.phase%21%3DFailed&labelSelector=x",
            "",
            None,
        ),
        ("POST", "/api/v1/namespaces/ml/pods?dryRun=All", "application/json", {"kind": "Pod"}),
        (
            "PATCH",
            "/api/v1/namespaces/ml/pods/p/status",
            "application/json-patch+json",
            [{"op": "remove", "path": "/x"}],
        ),
        (
            "PATCH",
            "/api/v1/nodes/n?fieldManager=closeknit-agent&force=true",
            "application/apply-patch+yaml",
            {"kind": "Node"},
        ),
        ("PUT", f"{job}/status?timeout=4s", "application/json", {"metadata": {"resourceVersion": "7"}}),
        ("DELETE", "/api/v1/namespaces/ml/pods/p", "application/json", options),
        ("DELETE", "/api/v1/namespaces/ml/pods/q", "application/json", {**options, "gracePeriodSeconds": 0}),
    ]


def event(kind: str, name: str, **fields: Any) -> bytes:
    body = {"type": kind, "object": {"metadata": {"name": name, "resourceVersion": "8"}, **fields}}
    return json.dumps(body).encode() + b"\n"


async def streamed(
    chunks: list[bytes], folder: Path, *, cut: bool = False
) -> tuple[list[tuple[str, str]], ApiError | None]:
    """Kinds and names that a watch of these chunks gives, and the error that ended it."""

    async def handler(request: web.Request) -> web.StreamResponse:
        assert request.query_string == (
            "watch=true&allowWatchBookmarks=true&resourceVersion=7&timeoutSeconds=240&fieldSelector=metadata.name%3Dn"
        )
        response = web.StreamResponse()
        await response.prepare(request)
        for chunk in chunks:
            await response.write(chunk)
            await asyncio.sleep(0.01)  # so that each is a read of its own, which no assertion needs
        if cut and request.transport is not None:
            request.transport.abort()
        return response

    seen: list[tuple[str, str]] = []
    async with serving(handler, folder) as api:
        stream = api.watch(NODES, resource_version="7", timeout_s=240, field_selector="metadata.name=n")
        try:
            async with aclosing(stream):
                assert await anext(stream) == ()
                async for batch in stream:
                    seen += [(found.kind, json.loads(found.document)["metadata"]["name"]) for found in batch]
        except ApiError as error:
            return seen, error
    return seen, None


LARGE = event("MODIFIED", "large", blob="x" * 1_500_000)
A, B = event("ADDED", "a"), event("DELETED", "b")


@pytest.mark.parametrize(
    ("chunks", "expected"),
    [
        pytest.param([], [], id="nothing"),
        pytest.param([A, B], [("ADDED", "a"), ("DELETED", "b")], id="one event per chunk"),
        pytest.param([A + B], [("ADDED", "a"), ("DELETED", "b")], id="two events in one chunk"),
        pytest.param(
            [A[:9], A[9:20], A[20:] + B[:5], B[5:]], [("ADDED", "a"), ("DELETED", "b")], id="events over chunks"
        ),
        pytest.param([A[:-1], b"\n"], [("ADDED", "a")], id="the line's end alone"),
        pytest.param([LARGE[:700_000], LARGE[700_000:] + A], [("MODIFIED", "large"), ("ADDED", "a")], id="1.5 MB"),
    ],
)
def test_a_watch_puts_events_together(chunks: list[bytes], expected: list[tuple[str, str]], tmp_path: Path) -> None:
    assert asyncio.run(streamed(chunks, tmp_path)) == (expected, None)


@pytest.mark.parametrize(
    ("chunks", "cut", "kind", "message"),
    [
        pytest.param(
            [A, B[:9]], False, Unavailable, "the watch was cut off inside an event", id="ends inside an event"
        ),
        pytest.param([A], True, Unavailable, "no answer from the API server: ", id="connection lost"),
        pytest.param(
            [A, b'{"type": "ERROR", "object": ' + status(410, "Expired", "too old resource version: 7 (9)") + b"}\n"],
            False,
            Gone,
            "too old resource version: 7 (9)",
            id="an ERROR event",
        ),
    ],
)
def test_a_watch_raises_what_breaks_it(
    chunks: list[bytes], cut: bool, kind: type[ApiError], message: str, tmp_path: Path
) -> None:
    seen, error = asyncio.run(streamed(chunks, tmp_path, cut=cut))
    assert seen == [("ADDED", "a")]
    assert type(error) is kind
    assert str(error).startswith(message)


def answering(code: int, body: bytes, **headers: str) -> Handler:
    async def handler(_: web.Request) -> web.Response:
        return web.Response(status=code, body=body, headers=headers)

    return handler


async def cut_off(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Length": "9"})
    await response.prepare(request)
    await response.write(b"{}")
    if request.transport is not None:
        request.transport.abort()
    return response


@pytest.mark.parametrize(
    ("handler", "kind", "words"),
    [
        pytest.param(
            answering(200, b"<html>"), Unavailable, "the answer is not what an API server sends", id="no JSON"
        ),
        pytest.param(answering(403, status(403, "Forbidden", "no")), Forbidden, "no", id="refused"),
        pytest.param(cut_off, Unavailable, "no answer", id="cut off"),
    ],
)
def test_every_verb_raises_api_errors(handler: Handler, kind: type[ApiError], words: str, tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(handler, tmp_path) as api:
            node = {"kind": "Node"}
            for call in (api.get(NODES, "n"), api.list(NODES), api.create(NODES, node), api.make(NODES, node)):
                with pytest.raises(kind, match=words):
                    await call

    asyncio.run(main())


def test_too_many_requests_say_how_long_to_wait(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(
            answering(429, status(429, "TooManyRequests", "slow"), **{"Retry-After": "3"}), tmp_path
        ) as api:
            with pytest.raises(TooManyRequests) as refusal:
                await api.list(NODES)
            assert refusal.value.retry_after_s == 3.0
            with pytest.raises(TooManyRequests):
                await anext(api.watch(NODES, resource_version="7", timeout_s=1))

    asyncio.run(main())


@pytest.mark.parametrize(
    ("found", "succeeds"),
    [
        pytest.param(None, True, id="gone meanwhile"),
        pytest.param("V", True, id="the name is another object's"),
        pytest.param("U", False, id="still there"),
    ],
)
def test_a_delete_that_conflicts_succeeds_if_its_object_is_gone(
    found: str | None, succeeds: bool, tmp_path: Path
) -> None:
    async def handler(request: web.Request) -> web.Response:
        if request.method == "DELETE":
            return web.Response(status=409, body=status(409, "Conflict", "no"))
        if found is None:
            return web.Response(status=404, body=status(404, "NotFound", "none"))
        return web.json_response({"metadata": {"uid": found}})

    async def main() -> None:
        async with serving(handler, tmp_path) as api:
            if succeeds:
                await api.delete(NODES, "n", uid="U")
            else:
                with pytest.raises(Conflict, match="no"):
                    await api.delete(NODES, "n", uid="U")

    asyncio.run(main())


def test_a_server_that_does_not_answer_is_unavailable_in_time(tmp_path: Path) -> None:
    async def handler(_: web.Request) -> web.Response:
        await asyncio.Event().wait()
        raise AssertionError

    async def main() -> None:
        async with serving(handler, tmp_path, request_timeout_s=0.1) as api:
            with pytest.raises(Unavailable, match="no answer from the API server: none came in time"):
                await api.get(NODES, "n")

    asyncio.run(main())


def test_of_what_is_made_no_more_is_asked_back_than_its_metadata(tmp_path: Path) -> None:
    async def handler(request: web.Request) -> web.Response:
        assert request.headers["Accept"].startswith("application/json;as=PartialObjectMetadata;")
        return web.json_response({"metadata": {"name": "p", "uid": "u", "resourceVersion": "7"}}, status=201)

    async def main() -> None:
        async with serving(handler, tmp_path) as api:
            made = await api.make(PODS, {"kind": "Pod"}, namespace="ml")
            assert (made.uid, made.resourceVersion) == ("u", "7")

    asyncio.run(main())


def test_a_token_of_two_lines_is_not_sent(tmp_path: Path) -> None:
    async def handler(_: web.Request) -> web.Response:
        raise AssertionError("a second line would be a header of its own")

    async def main() -> None:
        async with serving(handler, tmp_path, token="secret\r\nImpersonate-User: admin") as api:  # noqa: S106 -- none
            with pytest.raises(Unavailable, match="more than one line"):
                await api.get(NODES, "n")

    asyncio.run(main())


def test_a_server_that_is_not_there_is_unavailable(tmp_path: Path) -> None:
    async def main() -> None:
        kubeconfig = write_kubeconfig(tmp_path, "http://127.0.0.1:1")
        api: Api
        async with await HttpApi.connect(kubeconfig=kubeconfig, user_agent="closeknit-test/1") as api:
            with pytest.raises(Unavailable, match="no answer from the API server: Cannot connect to host"):
                await api.get(NODES, "n")
            with pytest.raises(Unavailable):
                await anext(api.watch(NODES, resource_version="7", timeout_s=1))

    asyncio.run(main())


def test_the_kernel_looks_after_streams_that_say_nothing(tmp_path: Path) -> None:
    """Else nothing ends one whose peer is gone: a read has no limit of its own."""
    options: list[int] = []

    async def handler(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"piece")
        await asyncio.sleep(60)
        return response

    async def main() -> None:
        async with serving(handler, tmp_path) as api, api._requests.stream("/log", {}) as response:
            connection = response.connection
            assert connection is not None and connection.transport is not None
            found = connection.transport.get_extra_info("socket")
            options.append(found.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE))
            options.append(found.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE))

    asyncio.run(main())
    assert options == [1, 15]
