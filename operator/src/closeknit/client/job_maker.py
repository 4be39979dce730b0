"""How a client makes drafts of jobs: the same for both clients, and without a request."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from closeknit.client.client_errors import JobRefused
from closeknit.client.job_draft import JobDraft, drafted, simple_template
from closeknit.client.odd_arguments import check_command, check_mapping, check_name, check_plain

if TYPE_CHECKING:
    from closeknit.api.trainingjob import (
        Elastic,
        GpuRequest,
        NetworkRequest,
        Parallelism,
        Restart,
        StorageRequest,
        TopologyRequest,
    )


class JobMaker:
    """Base of the clients."""

    def __init__(self, namespace: str | None) -> None:
        if namespace:
            check_name(namespace, "the name of a namespace")
        self._namespace = namespace

    def job(  # noqa: PLR0913 - one for each field of a TrainingJob
        self,
        name: str,
        *,
        gpus: int,
        image: str | None = None,
        command: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        limits: Mapping[str, str] | None = None,
        template: Mapping[str, Any] | None = None,
        framework: str | None = None,
        parallelism: "Parallelism | Mapping[str, Any] | None" = None,
        topology: "TopologyRequest | Mapping[str, Any] | None" = None,
        gpu: "GpuRequest | Mapping[str, Any] | None" = None,
        network: "NetworkRequest | Mapping[str, Any] | None" = None,
        storage: "StorageRequest | Mapping[str, Any] | None" = None,
        parameter_servers: Mapping[str, Any] | None = None,
        queue: str | None = None,
        priority_class_name: str | None = None,
        expected_duration: str | None = None,
        elastic: "Elastic | Mapping[str, Any] | None" = None,
        spares: int | None = None,
        restart: "Restart | Mapping[str, Any] | None" = None,
        defragment: str | None = None,
        preflight: str | None = None,
        suspend: bool | None = None,
        ttl_seconds_after_finished: int | None = None,
        active_deadline_seconds: int | None = None,
        labels: Mapping[str, str] | None = None,
        annotations: Mapping[str, str] | None = None,
    ) -> JobDraft:
        """A TrainingJob, checked as `closeknit plan` checks a file; nothing is sent.

        Its Pods are those of `image` with `command`, `env` and `limits` (`{"cpu": "8", "memory": "64Gi"}`; the GPUs
        are added), or those of `template`, a Pod template as in a manifest: give one of them. The other arguments are
        the fields of the spec, by their names in snake_case; docs/reference/trainingjob.md says what each does. A part
        such as `parallelism` is its model, `Parallelism(tensor=4)`, or a dict.

        Raises JobRefused, which names the field.
        """
        if not isinstance(name, str):
            check_name(name)
        check_command(command)
        check_mapping(template, "template")
        for what, given in (("env", env), ("limits", limits), ("labels", labels), ("annotations", annotations)):
            check_mapping(given, what, of_text=what in {"labels", "annotations"})
        for what, plain in (("name", name), ("image", image), ("command", command), ("env", env), ("limits", limits),
                            ("template", template), ("labels", labels), ("annotations", annotations)):  # fmt: skip
            check_plain(plain, what)
        if (image is None) == (template is None):
            raise JobRefused(f"TrainingJob {name}: give either image, with its command, or template")
        if template is not None and (command or env or limits):
            raise JobRefused(f"TrainingJob {name}: command, env and limits go with image; template has its own")
        made = dict(template or {}) if image is None else simple_template(image, command, env, limits)
        spec = {
            "gpus": gpus,
            "framework": framework,
            "parallelism": parallelism,
            "topology": topology,
            "gpu": gpu,
            "network": network,
            "storage": storage,
            "parameter_servers": parameter_servers,
            "queue": queue,
            "priority_class_name": priority_class_name,
            "expected_duration": expected_duration,
            "elastic": elastic,
            "spares": spares,
            "restart": restart,
            "defragment": defragment,
            "preflight": preflight,
            "suspend": suspend,
            "ttl_seconds_after_finished": ttl_seconds_after_finished,
            "active_deadline_seconds": active_deadline_seconds,
        }
        return drafted(name, self._namespace, spec, made, labels, annotations)
