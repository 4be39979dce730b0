"""`closeknit.client` over HTTP, against an API server in memory that others write to meanwhile."""

import asyncio
import copy
import json
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from closeknit.client import (
    AsyncClient,
    Client,
    ClientError,
    JobDraft,
    JobFailed,
    JobRefused,
    NoSuchJob,
    Parallelism,
    Placed,
    PlanRefused,
    SeenJob,
    WaitTimeout,
    waiting,
)
from closeknit.kube.api import Key, ListPage, Resource
from closeknit.kube.backoff import Backoff
from closeknit.kube.errors import ApiError, Forbidden, TooManyRequests, Unauthorized, Unavailable
from faults import virtual_time
from faults.http_server import write_kubeconfig
from faults.http_store import HttpStore

JOBS = Resource("closeknit.dev", "v1alpha1", "trainingjobs")
EVENTS = Resource("", "v1", "events")
LLAMA = "llama-70b-a2-worker-00000"


@pytest.fixture
def client(server: HttpStore) -> Client:
    return Client(kubeconfig=server.kubeconfig, namespace="ml")


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "BACKOFF", Backoff(first_s=0.01, longest_s=0.02))


def later(told: list[Any], *acts: Callable[[], object]) -> threading.Thread:
    """Does these things one after the other, from when something is told."""

    def run() -> None:
        deadline = time.monotonic() + 10
        while not told and time.monotonic() < deadline:
            time.sleep(0.01)
        for act in acts:
            act()
            time.sleep(0.1)

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def becomes(server: HttpStore, state: str, **status: Any) -> Callable[[], None]:
    return lambda: server.set_status(JOBS, Key("ml", "moe-16"), {"state": state, **status})


def test_a_job_is_planned_submitted_shown_and_deleted(client: Client, server: HttpStore) -> None:
    job = client.job(
        "small", gpus=2, image="train:1", command=["python", "train.py"], env={"EPOCHS": "3"}, limits={"cpu": "4"},
        parallelism=Parallelism(tensor=2), topology={"gpus_per_node": 2}, labels={"team": "a"}, spares=0,
    )  # fmt: skip
    (trainer,) = job.body["spec"]["template"]["spec"]["containers"]
    assert job.body["spec"] == {
        "gpus": 2, "parallelism": {"tensor": 2}, "topology": {"gpusPerNode": 2}, "spares": 0,
        "template": {"spec": {"containers": [trainer]}},
    }  # fmt: skip
    assert trainer == {
        "name": "trainer", "image": "train:1", "command": ["python", "train.py"],
        "env": [{"name": "EPOCHS", "value": "3"}], "resources": {"limits": {"cpu": "4"}},
    }  # fmt: skip

    answer = client.plan(job)
    assert isinstance(answer, Placed) and answer.placement.node_count == 1 and len(answer.ranks) == 2
    assert not [
        each for each in server.asked if each.startswith("POST") and "dryRun" not in each and "review" not in each
    ]

    made = client.submit(job)
    assert (made.name, made.namespace, made.state, made.ranks) == ("small", "ml", "Queued", ())
    assert server.do(lambda: server.store.get(JOBS, Key("ml", "small")))["metadata"]["labels"] == {"team": "a"}
    with pytest.raises(JobRefused, match="there is a TrainingJob ml/small already: delete it first"):
        client.submit(job)
    client.delete("small")
    with pytest.raises(NoSuchJob, match="no TrainingJob small in namespace ml; there are llama-70b, moe-16, tensor-4"):
        client.delete("small")


def test_a_job_that_does_not_fit_says_what_would(client: Client) -> None:
    answer = client.plan(
        client.job("wide", gpus=16, image="a", parallelism={"tensor": 16}, topology={"nvlink": "Required"})
    )
    assert isinstance(answer, PlanRefused)
    assert (answer.pending.reason, answer.pending.nearest is not None) == ("NoNVLinkIsland", True)


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"gpus": 3, "parallelism": {"tensor": 2}}, "parallelism: tensor x context x pipeline must divide gpus"),
        ({"gpus": 0}, "spec.gpus: input should be greater than or equal to 1"),
        ({"gpus": 4, "parallelism": {"tensr": 1}}, "spec.parallelism.tensr: unknown field"),
        ({"gpus": 4, "framework": "Torch"}, "spec.framework: input should be 'PyTorch'"),
        ({"gpus": 4, "env": {"A": 3}}, "env[0].value: is the number 3; write it as a string"),
        ({"gpus": 4, "template": {"spec": {}}}, "give either image, with its command, or template"),
        ({"gpus": 4, "image": None}, "give either image, with its command, or template"),
        ({"gpus": 4, "image": None, "env": {"A": "3"}, "template": {}}, "command, env and limits go with image"),
    ],
)  # fmt: skip
def test_a_mistake_is_told_before_anything_is_sent(client: Client, server: HttpStore, asked: Any, words: str) -> None:
    with pytest.raises(JobRefused) as refused:
        client.job("a", **{"image": "b", **asked})
    assert words in str(refused.value) and "\n" not in str(refused.value)
    assert refused.value.__suppress_context__ or refused.value.__context__ is None
    assert server.asked == []


KIND = {"apiVersion": "closeknit.dev/v1alpha1", "kind": "TrainingJob"}
CYCLE: dict[str, Any] = {}
CYCLE["spec"] = CYCLE


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"command": "torchrun train.py"}, "command is a str; give a list of its words: ['torchrun', 'train.py']"),
        ({"command": [Path("x"), 5]}, "command[0] is a PosixPath, PosixPath('x'); give a str"),
        ({"command": 5}, "command is a int; give a list of str"),
        ({"labels": {"a": object}}, "labels['a'] is a type"),
        ({"labels": ["a"]}, "labels is a list; give a dict"),
        ({"env": [1]}, "env is a list; give a dict"),
        ({"limits": "8"}, "limits is a str; give a dict"),
        ({"image": "x\ud800"}, "image has characters that are no Unicode text"),
        ({"image": None, "template": "x"}, "template is a str; give a dict"),
        ({"image": None, "template": {"spec": {"a": {"b"}}}}, "template.spec.a is a set, {'b'}"),
        ({"image": None, "template": {"spec": {"a": datetime.now(UTC)}}}, "template.spec.a is a datetime"),
        ({"image": None, "template": {"spec": {5: 1}}}, "template.spec has the key 5, which is a int"),
        ({"image": None, "template": CYCLE}, "is nested more than 64 levels deep"),
        ({"name": 5}, "5 is a int; the name of a TrainingJob is a str"),
    ],
)  # fmt: skip
def test_what_no_job_can_have_is_told_in_a_sentence(client: Client, asked: Any, words: str) -> None:
    with pytest.raises(ClientError) as refused:
        client.job(**{"name": "a", "gpus": 1, "image": "b", **asked})
    assert words in str(refused.value) and "\n" not in str(refused.value)
    str(refused.value).encode()


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda c: c.get(5), "5 is a int; the name of a TrainingJob is a str"),
        (lambda c: c.get(None), "None is None"),
        (lambda c: c.get(".."), "'..' is not the name of a TrainingJob"),
        (lambda c: c.get("a/status"), "'a/status' is not the name"),
        (lambda c: c.delete(""), "'' is not the name"),
        (lambda c: c.events(""), "'' is not the name"),
        (lambda c: c.wait("a,b"), "'a,b' is not the name"),
        (lambda c: c.wait("a", timeout_s=float("nan")), "timeout_s=nan: it is a number"),
        (lambda c: c.wait("a", timeout_s="5"), "timeout_s='5': it is a number"),
        (lambda c: list(c.logs("llama-70b", rank="0")), "rank='0': it is a whole number"),
        (lambda c: list(c.logs("llama-70b", rank=-1)), "rank=-1: it is 0 or more"),
        (lambda c: list(c.logs("llama-70b", tail=-1)), "tail=-1: it is 0 or more"),
        (lambda c: c.submit({"metadata": {"name": "a"}}), "the job is a dict; make one by client.job"),
        (lambda c: c.submit(JobDraft({})), "the draft has no apiVersion: closeknit.dev/v1alpha1"),
        (lambda c: c.plan(JobDraft(KIND)), "no metadata.name"),
        (lambda _: Client(namespace="a/b"), "'a/b' is not the name of a namespace"),
    ],
)  # fmt: skip
def test_odd_arguments_are_told_in_a_sentence(
    client: Client, server: HttpStore, call: Callable[[Any], Any], words: str
) -> None:
    with pytest.raises(ClientError) as refused:
        call(client)
    assert words in str(refused.value) and "\n" not in str(refused.value)
    assert server.asked == []


def test_who_may_not_make_jobs_is_told_who_may_not_do_what(client: Client, server: HttpStore) -> None:
    said = 'trainingjobs.closeknit.dev is forbidden: User "ann" cannot create resource "trainingjobs" in API group'
    server.says["POST trainingjobs"] = Forbidden(said, code=403, reason="Forbidden")
    with pytest.raises(JobRefused, match=r'^"ann" may not create TrainingJobs in namespace ml: an administrator'):
        client.submit(client.job("a", gpus=1, image="b"))


def test_what_the_api_server_refuses_is_one_sentence(client: Client, server: HttpStore) -> None:
    server.says["POST trainingjobs"] = Forbidden("exceeded quota:\n jobs=2", code=403, reason="Forbidden")
    with pytest.raises(JobRefused, match=r"the API server refuses TrainingJob ml/a: exceeded quota: jobs=2$"):
        client.submit(client.job("a", gpus=1, image="b"))


def test_explain_is_what_the_command_prints(client: Client, server: HttpStore) -> None:
    arguments = ["explain", "llama-70b", "-n", "ml", "-o", "json", "--kubeconfig", str(server.kubeconfig)]
    code = "from closeknit import start; start.command()"
    ended = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True)
    told = json.loads(ended.stdout)
    assert json.loads(msgspec.json.encode(client.explain("llama-70b"))) == told
    assert len(told["pods"]) == 2


def test_a_notebook_shows_each_gpu_and_escapes_all_text(client: Client, server: HttpStore) -> None:
    seen = client.get("llama-70b")
    shown = seen._repr_html_()
    assert len(seen.ranks) == shown.count("<span ") == 16
    assert "ml/llama-70b" in shown and 'title="rank 15: GPU' in shown

    server.set_status(JOBS, Key("ml", "moe-16"), {"state": "<b>", "reason": "<i>", "message": "</table><script>&"})
    shown = client.get("moe-16")._repr_html_()
    assert "&lt;/table&gt;&lt;script&gt;&amp;" in shown
    assert "<script" not in shown and "<i>" not in shown and shown.count("</table>") == 1


def test_it_waits_and_tells_what_changes(client: Client, server: HttpStore) -> None:
    """In the thread that waits, each change once, through a stream that ends."""
    told: list[str] = []
    threads: set[int] = set()

    def progress(job: SeenJob) -> None:
        told.append(f"{job.state} {job.reason}")
        threads.add(threading.get_ident())
        if job.state == "Starting":
            server.do(server.api.end_streams)
            becomes(server, "Starting")()
            becomes(server, "Running")()

    thread = later(told, becomes(server, "Starting"))
    seen = client.wait("moe-16", "Running", timeout_s=20, progress=progress)
    thread.join()
    assert (seen.state, threads) == ("Running", {threading.get_ident()})
    assert told == ["Queued NoNVLinkIsland", "Starting None", "Running None"]


def test_an_outage_ends_no_wait(client: Client, server: HttpStore) -> None:
    told: list[SeenJob] = []

    def out() -> None:
        server.says["GET trainingjobs"] = Unavailable("down", code=503)
        server.do(server.api.end_streams)

    thread = later(told, out, server.says.clear, lambda: server.do(server.store.compact), becomes(server, "Succeeded"))
    assert client.wait("moe-16", timeout_s=20, progress=told.append).state == "Succeeded"
    thread.join()


@pytest.mark.parametrize("refused", [{2}, {2, 4}])
def test_one_refused_login_ends_no_wait(refused: set[int]) -> None:
    """An API server whose own login is out for a moment refuses a good token, too; two in a row are believed."""
    told = run_wait(refused)
    assert told.state == "Succeeded"
    with pytest.raises(Unauthorized):
        run_wait({2, 3})
    with pytest.raises(Unauthorized):
        run_wait({1})


def run_wait(refused: set[int]) -> SeenJob:
    """A wait whose lists of these numbers are refused, and whose watches are cut off; it succeeds at the sixth."""
    lists = [0]

    class Refusing:
        async def list(self, *_: Any, **__: Any) -> ListPage:
            lists[0] += 1
            if lists[0] in refused:
                raise Unauthorized("Unauthorized", code=401)
            state = "Running" if lists[0] < 6 else "Succeeded"
            body = {"metadata": {"name": "a", "namespace": "ml", "uid": "u"}, "spec": {}, "status": {"state": state}}
            return ListPage((json.dumps(body).encode(),), "1", None)

        async def watch(self, *_: Any, **__: Any) -> AsyncIterator[Any]:
            yield ()
            raise Unavailable("lost")

    return virtual_time.run(waiting.JobWait(Refusing(), "ml", "a", "Succeeded", None).end())  # type: ignore[arg-type]


@pytest.mark.parametrize("error", [TooManyRequests("slow", code=429, retry_after_s=0.01), Unavailable("x", code=503)])
def test_an_api_server_that_is_busy_is_asked_again_for_the_first_time(
    client: Client, server: HttpStore, error: ApiError
) -> None:
    server.says["GET trainingjobs"] = error
    thread = threading.Timer(0.3, server.says.clear)
    thread.start()
    assert client.wait("tensor-4", "Running", timeout_s=20).state == "Running"
    thread.join()


def test_a_job_that_fails_raises_why(client: Client, server: HttpStore) -> None:
    told: list[SeenJob] = []
    thread = later(told, becomes(server, "Failed", reason="ExitCode", message="rank 3 ended with exit code 1"))
    with pytest.raises(JobFailed, match=r"^ml/moe-16: Failed \(ExitCode\): rank 3 ended with exit code 1$") as failed:
        client.wait("moe-16", timeout_s=20, progress=told.append)
    thread.join()
    assert (failed.value.reason, failed.value.message) == ("ExitCode", "rank 3 ended with exit code 1")


def test_a_wait_ends_in_time(client: Client) -> None:
    told: list[SeenJob] = []
    with pytest.raises(TimeoutError, match=r"^moe-16 is not Running after 2 s; it is Queued \(NoNVL.*\)$") as late:
        client.wait("moe-16", "Running", timeout_s=2, progress=told.append)
    assert isinstance(late.value, WaitTimeout) and late.value.job == told[-1]


def test_a_wait_ends_where_the_job_is_gone(client: Client, server: HttpStore) -> None:
    told: list[SeenJob] = []
    with pytest.raises(NoSuchJob, match="there is no TrainingJob ml/none: submit it first"):
        client.wait("none")
    thread = later(told, lambda: server.do(lambda: server.store.delete(JOBS, Key("ml", "moe-16"))))
    with pytest.raises(NoSuchJob, match="ml/moe-16 is gone"):
        client.wait("moe-16", timeout_s=20, progress=told.append)
    thread.join()


def test_only_what_a_job_comes_to_is_waited_for(client: Client, server: HttpStore) -> None:
    with pytest.raises(ValueError, match="until is 'Failed'; allowed: Running, Succeeded"):
        client.wait("moe-16", "Failed")  # type: ignore[arg-type]
    assert server.asked == []


def test_words_of_others_do_nothing_to_a_terminal(client: Client, server: HttpStore) -> None:
    server.set_status(JOBS, Key("ml", "moe-16"), {"state": "Failed", "reason": "a", "message": "\x1b[2Jb"})
    with pytest.raises(JobFailed) as failed:
        client.wait("moe-16", timeout_s=20)
    assert "\x1b" not in str(failed.value) and "\x1b" not in str(client.get("moe-16"))


def test_what_progress_raises_ends_the_wait(client: Client) -> None:
    def raises(_: SeenJob) -> None:
        raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        client.wait("moe-16", progress=raises)


def test_logs_are_lines(client: Client, server: HttpStore) -> None:
    server.printed[LLAMA] = [b"step ", b"1\nstep 2\r\n", b"\xff end"]
    assert list(client.logs("llama-70b", follow=False)) == ["step 1", "step 2", "\ufffd end"]
    with pytest.raises(ClientError, match="has ranks 0 to 15, and none of 99"):
        list(client.logs("llama-70b", 99))
    with pytest.raises(ClientError, match=r"moe-16 has no Pod yet: it is Queued .*; follow= waits for it"):
        list(client.logs("moe-16", follow=False))
    with pytest.raises(NoSuchJob):
        next(iter(client.logs("none")))


def test_logs_wait_for_pods_and_for_a_slow_reader(client: Client, server: HttpStore, busy: list[Any]) -> None:
    """Of a log without end a bounded part is read; what is left early is closed."""
    said: list[str] = []
    placed = next(each for each in busy if each["metadata"]["name"] == "llama-70b" and each["kind"] == "TrainingJob")
    status = copy.deepcopy(placed["status"])
    stamp = "2026-01-01T00:00:00.{:09d}Z x{}\n"
    piece = [b"".join(stamp.format(at, " " * 1000).encode() for at in range(n, n + 100)) for n in range(0, 40_000, 100)]
    server.printed["moe-16-a2-worker-00000"] = piece
    thread = later(said, lambda: server.set_status(JOBS, Key("ml", "moe-16"), status))
    lines = client.logs("moe-16", say=said.append)
    assert [next(lines).strip() for _ in range(3)] == ["x"] * 3
    thread.join()
    time.sleep(0.2)
    assert (server.open_logs, server.sent_bytes < 20_000_000 < sum(map(len, piece))) == (1, True)
    lines.close()  # type: ignore[attr-defined] # it is a generator
    assert said == ["ml/moe-16 has no Pod yet: it is Queued (NoNVLinkIsland)"]
    deadline = time.monotonic() + 10
    while server.open_logs:
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_the_async_client_does_the_same(server: HttpStore) -> None:
    server.printed[LLAMA] = [b"a\nb\n"]

    async def main() -> tuple[list[str], str, str]:
        client = AsyncClient(kubeconfig=server.kubeconfig, namespace="ml")
        async with aclosing(client.logs("llama-70b", follow=False)) as lines:
            found = [line async for line in lines]
        both = await asyncio.gather(client.get("llama-70b"), client.wait("tensor-4", "Running"))
        return found, both[0].state, both[1].state

    assert asyncio.run(main()) == (["a", "b"], "Running", "Running")


def test_a_client_works_where_a_loop_runs_already(client: Client) -> None:
    async def cell() -> str:
        return client.get("tensor-4").state

    assert asyncio.run(cell()) == "Running"


def test_events_come_in_their_order(client: Client, server: HttpStore) -> None:
    uid = server.do(lambda: server.store.get(JOBS, Key("ml", "moe-16")))["metadata"]["uid"]
    for at, of in ((2, uid), (1, uid), (3, "another")):
        body = {
            "apiVersion": "v1", "kind": "Event", "metadata": {"name": f"e{at}", "namespace": "ml"},
            "involvedObject": {"uid": of}, "type": "Warning",
            "reason": f"R{at}", "message": "words", "eventTime": f"2026-11-26T09:00:0{at}.000000Z",
        }  # fmt: skip
        server.put(EVENTS, body)
    odd = {"apiVersion": "v1", "kind": "Event", "metadata": {"name": "odd", "namespace": "ml"}, "message": [1]}
    server.put(EVENTS, {**odd, "involvedObject": {"uid": uid}})
    found = client.events("moe-16")
    assert [(each.reason, each.type, each.count) for each in found] == [("R1", "Warning", 1), ("R2", "Warning", 1)]
    assert str(found[0]) == "2026-11-26T09:00:01.000000Z Warning R1: words"


def test_who_may_not_list_pods_sees_the_job(client: Client, server: HttpStore) -> None:
    server.says["GET pods"] = Forbidden("no", code=403, reason="Forbidden")
    seen = client.get("llama-70b")
    assert (seen.pods, seen.explanation.pods, len(seen.ranks)) == (None, None, 16)


def test_a_cluster_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    client = Client(kubeconfig=write_kubeconfig(tmp_path, "http://127.0.0.1:1"))
    for call in (
        lambda: client.get("a"),
        lambda: client.wait("a"),
        lambda: client.plan(client.job("a", gpus=1, image="b")),
    ):
        with pytest.raises(ClientError, match=r"^cannot ask the cluster: ") as raised:
            call()
        assert raised.value.__cause__ is None and raised.value.__suppress_context__
    with pytest.raises(ClientError, match="name one by kubeconfig= or"):
        Client(kubeconfig=tmp_path / "none").get("a")


def test_the_import_waits_for_no_models() -> None:
    """Modules are counted, for a second is another one elsewhere: 240 of them today, in a quarter of a second."""
    code = "import sys; n = len(sys.modules); import closeknit.client; print(len(sys.modules) - n, *sys.modules)"
    number, *names = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert int(number) < 260
    unneeded = {"pydantic", "typer", "rich", "aiohttp", "kubernetes", "immutables", "closeknit.api.trainingjob", "kopf"}
    assert unneeded & set(names) == set()


class SilentApi:
    """A connection that died without a word: its watch gives nothing, and has no end. The job succeeds meanwhile."""

    def __init__(self) -> None:
        self.lists = 0

    async def list(self, *_: object, **__: object) -> Any:
        self.lists += 1
        status = {"state": "Running" if self.lists == 1 else "Succeeded"}
        job = {"metadata": {"name": "train", "namespace": "ml", "uid": "u"}, "spec": {"gpus": 1}, "status": status}
        return type("Page", (), {"items": [msgspec.json.encode(job)], "resource_version": "5"})

    async def watch(self, *_: object, **__: object) -> Any:
        await asyncio.sleep(3600)
        yield []


def test_a_connection_that_died_in_silence_does_not_keep_a_wait_from_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "WATCH_S", 0)
    monkeypatch.setattr(waiting, "SILENT_S", 0.05)
    api: Any = SilentApi()
    found = asyncio.run(asyncio.wait_for(waiting.JobWait(api, "ml", "train", "Succeeded", None).end(), 10))
    assert found.state == "Succeeded"


def test_a_call_from_the_thread_of_the_answers_is_refused_and_waits_for_nothing(client: Client) -> None:
    heard: list[object] = []

    def say(words: str) -> None:
        with pytest.raises(ClientError, match="inside `say`"):
            client.get("llama-70b")
        heard.append(words)
        raise RuntimeError("enough")

    def read() -> None:
        with suppress(RuntimeError):
            next(client.logs("moe-16", say=say), None)

    threading.Thread(target=read).start()
    deadline = time.monotonic() + 10
    while not heard and time.monotonic() < deadline:
        time.sleep(0.01)
    assert heard
    assert client.get("llama-70b").state == "Running"


def test_fewer_lines_than_none_are_refused(client: Client) -> None:
    with pytest.raises(ClientError, match="0 or more"):
        next(client.logs("llama-70b", tail=-1))
