"""Strangers at the operator's port: thousands of tokens that nobody knows, while jobs start and metrics are read; and
readers of the map."""

import json
import os
import signal
import ssl
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import pytest

from harness.chart import NAMESPACE
from harness.install import OPERATOR, free_port
from harness.local_cluster import is_running
from harness.operator_bed import ON_PLUGIN, USER, Bed, status_of

FLOOD_OF = 100  # tokens at least: with a handshake for each a busy machine makes some fifty in a second
STARTS = 3
UNCHECKED = ssl._create_unverified_context()  # noqa: S323 - the operator made its certificate itself
# From an address of its own, as Pods have: 16 connections at a time, a new token on each, until its input ends. Prints
# what was answered.
FLOOD = """
import asyncio, collections, itertools, os, ssl, sys

context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
context.check_hostname, context.verify_mode = False, ssl.CERT_NONE

async def main(port):
    numbers, seen = itertools.count(), collections.Counter()
    over = asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)

    async def one():
        while not over.done():
            number = next(numbers)
            try:
                reader, writer = await asyncio.open_connection(
                    "127.0.0.1", port, local_addr=("127.0.0.2", 0), ssl=context
                )
                head = ("GET /metrics HTTP/1.1", "Host: a", f"Authorization: Bearer random-{number}", "", "")
                writer.write("\\r\\n".join(head).encode())
                seen[(await reader.read()).partition(b" ")[2][:3].decode()] += 1
                writer.close()
            except OSError:
                seen["lost"] += 1

    await asyncio.gather(*(one() for _ in range(16)))
    print(*(f"{status}={count}" for status, count in sorted(seen.items())))

os.nice(10)
asyncio.run(main(int(sys.argv[1])))
"""


@pytest.fixture
def port(bed: Bed) -> Iterator[int]:
    """The bed's operator, serving beyond localhost."""
    os.kill(bed.pid, signal.SIGTERM)
    bed.cluster.wait_for(lambda: not is_running(bed.pid), "the operator to end")
    port = free_port()
    pid = bed.cluster.start_program(
        "open-operator",
        str(Path(sys.executable).parent / "closeknit-operator"),
        f"--kubeconfig={bed.cluster.service_account_kubeconfig(NAMESPACE, OPERATOR)}",
        f"--metrics-address=:{port}",
    )
    try:
        bed.cluster.wait_for(lambda: status_of(port, "/readyz") == 200, "the operator to be ready")
        yield port
    finally:
        os.kill(pid, signal.SIGTERM)
        bed.cluster.wait_for(lambda: not is_running(pid), "the operator to end")
        bed.revive()


def scraper(bed: Bed, name: str) -> str:
    """The token of a ServiceAccount that may read the metrics."""
    where = f"--namespace={bed.namespace}"
    bed.cluster.kubectl("create", "serviceaccount", name, where)
    account = f"--serviceaccount={bed.namespace}:{name}"
    role = "--clusterrole=closeknit-metrics-reader"
    bed.cluster.kubectl("create", "clusterrolebinding", f"{bed.namespace}-{name}", role, account)
    return bed.cluster.kubectl("create", "token", name, where).strip()


def fastest_start_s(bed: Bed, name: str) -> float:
    """Seconds from the job's creation to its running, the best of three."""
    best = float("inf")
    for number in range(STARTS):
        began = time.monotonic()
        bed.submit(f"{name}-{number}", **ON_PLUGIN)
        bed.wait_for_state("Running", f"{name}-{number}")
        best = min(best, time.monotonic() - began)
        bed.cluster.kubectl("delete", "trainingjob", f"{name}-{number}", f"--namespace={bed.namespace}")
        bed.wait_for_nothing()
    return best


@pytest.mark.alone
def test_a_flood_of_tokens_slows_no_job_and_keeps_no_scraper_out(bed: Bed, port: int) -> None:
    known, new = scraper(bed, "known"), scraper(bed, "new")
    assert status_of(port, "/metrics", known) == 200
    quiet_s = fastest_start_s(bed, "quiet")
    reviews = len(token_reviews(bed))
    began = time.monotonic()
    with subprocess.Popen(
        [sys.executable, "-c", FLOOD, str(port)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as flood:
        bed.cluster.wait_for(lambda: len(token_reviews(bed)) > reviews, "the flood")
        assert status_of(port, "/metrics", known) == 200
        assert status_of(port, "/metrics", new) == 200
        assert status_of(port, "/healthz") == 200
        flooded_s = fastest_start_s(bed, "flooded")
        assert status_of(port, "/metrics", known) == 200
        said, _ = flood.communicate(timeout=120)
    took_s = time.monotonic() - began
    print(f"a start took {quiet_s:.2f} s, in the flood {flooded_s:.2f} s; in {took_s:.1f} s it heard {said.strip()}")
    assert flooded_s <= 2 * quiet_s
    heard = {status: int(count) for status, _, count in (answer.partition("=") for answer in said.split())}
    assert heard.keys() <= {"401", "429"}
    assert sum(heard.values()) >= FLOOD_OF
    # Five in a second for strangers; beside them the scrapers' own.
    assert len(token_reviews(bed)) - reviews <= 5 * took_s + 10


def token_reviews(bed: Bed) -> list[str]:
    made = (event for event in bed.cluster.audit_events() if event.resource == "tokenreviews")
    return [event.verb for event in made if event.user == USER]


def first_map(port: int, token: str) -> tuple[int, dict[str, Any]]:
    """Status of the map's stream, and its first message."""
    headers = {"Authorization": f"Bearer {token}", "Closeknit-Map": "1"}
    request = urllib.request.Request(f"https://127.0.0.1:{port}/map/stream", headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=20, context=UNCHECKED) as reply:  # noqa: S310 - our own
            told = next(line for line in reply if line.startswith(b"data: "))
            return reply.status, json.loads(told[6:])
    except HTTPError as error:
        return error.code, {}


def test_the_map_is_for_those_who_may_and_names_jobs_to_those_who_may_list_them(bed: Bed, port: int) -> None:
    bed.submit("seen", **ON_PLUGIN)
    bed.wait_for_state("Running", "seen")
    token = scraper(bed, "viewer")
    account = f"--serviceaccount={bed.namespace}:viewer"
    assert first_map(port, "")[0] == 401
    assert first_map(port, token)[0] == 403
    bed.cluster.kubectl(
        "create", "clusterrolebinding", f"{bed.namespace}-viewer-map", "--clusterrole=closeknit-map-viewer", account
    )

    def shown() -> dict[str, Any] | None:
        status, told = first_map(port, token)
        return told if status == 200 else None

    told = bed.cluster.wait_for(shown, "the map")
    assert (told.get("jobs"), told["hidden"]) == (None, 1)
    assert {who for node in told["nodes"].values() for who in node.get("held", {})} == {"?"}
    bed.cluster.kubectl(
        "create", "rolebinding", "viewer", "--clusterrole=closeknit-view", account, f"--namespace={bed.namespace}"
    )
    another = bed.cluster.kubectl("create", "token", "viewer", f"--namespace={bed.namespace}").strip()
    status, told = first_map(port, another)
    assert (status, list(told["jobs"]), told["hidden"]) == (200, [f"{bed.namespace}/seen"], 0)
    bed.cluster.kubectl("delete", "trainingjob", "seen", f"--namespace={bed.namespace}")
    bed.wait_for_nothing()
