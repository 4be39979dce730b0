"""A job that is still to be submitted."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from closeknit.api.names import GROUP, TRAINER_CONTAINER, VERSION
from closeknit.api.text.printable import printable
from closeknit.client.client_errors import JobRefused
from closeknit.client.odd_arguments import check_plain

if TYPE_CHECKING:
    from pydantic import ValidationError

    from closeknit.cli.input.cluster_file import JobFile


@dataclass(frozen=True)
class JobDraft:
    """A TrainingJob as `kubectl apply` would send it."""

    body: Mapping[str, Any]
    """apiVersion, kind, metadata and spec, in camelCase: json.dumps of it is a manifest."""

    @property
    def name(self) -> str:
        """metadata.name; empty where there is none."""
        return str(self._metadata.get("name") or "")

    @property
    def namespace(self) -> str | None:
        """metadata.namespace; None: where the client looks."""
        found: str | None = self._metadata.get("namespace")
        return found

    @property
    def _metadata(self) -> Mapping[str, Any]:
        found = self.body.get("metadata")
        return found if isinstance(found, Mapping) else {}

    def checked(self) -> "JobFile":
        """The job as `closeknit plan` reads it. Raises JobRefused at the first mistake."""
        from closeknit.cli.input.bad_input import BadInput  # noqa: PLC0415 - 0.3 s of models
        from closeknit.cli.input.cluster_file import training_job_of  # noqa: PLC0415
        from closeknit.cli.input.manifest import Manifest, Text  # noqa: PLC0415

        body = dict(self.body)
        check_plain(body, "job")
        for field, wanted in (("apiVersion", f"{GROUP}/{VERSION}"), ("kind", "TrainingJob")):
            if body.get(field) != wanted:
                raise JobRefused(f"the draft has no {field}: {wanted}; make it by client.job(...)")
        if not self.name:
            raise JobRefused("the draft has no metadata.name; make it by client.job(...)")
        try:
            return training_job_of(Manifest(Text(Path("job"), json.dumps(body)), 0, (), body))
        except BadInput as error:
            raise JobRefused(printable(f"{error.what}: {error.message}")) from None

    def _repr_html_(self) -> str:
        from html import escape  # noqa: PLC0415 - a pipeline shows none

        return f"<pre>{escape(json.dumps(self.body, indent=2))}</pre>"


def drafted(
    name: str,
    namespace: str | None,
    spec: Mapping[str, Any],
    template: Mapping[str, Any],
    labels: Mapping[str, str] | None,
    annotations: Mapping[str, str] | None,
) -> JobDraft:
    """The draft of these parts; of `spec` what is None is left out. Raises JobRefused."""
    from pydantic import ValidationError  # noqa: PLC0415 - 0.3 s of models

    from closeknit.api.trainingjob import TrainingJobSpec  # noqa: PLC0415

    given = {field: value for field, value in spec.items() if value is not None}
    try:
        read = TrainingJobSpec.model_validate({**given, "template": template}, extra="forbid")
    except ValidationError as error:
        raise JobRefused(f"TrainingJob {printable(name)}: {_first_mistake(error)}") from None
    written = read.model_dump(mode="json", by_alias=True, exclude_unset=True, exclude={"template"})
    metadata: dict[str, Any] = {"name": name}
    for field, value in (("namespace", namespace), ("labels", labels), ("annotations", annotations)):
        if value:
            metadata[field] = value if isinstance(value, str) else dict(value)
    draft = JobDraft(
        {
            "apiVersion": f"{GROUP}/{VERSION}",
            "kind": "TrainingJob",
            "metadata": metadata,
            "spec": {**written, "template": dict(template)},
        }
    )
    draft.checked()
    return draft


def simple_template(
    image: str, command: Sequence[str], env: Mapping[str, str] | None, limits: Mapping[str, str] | None
) -> dict[str, Any]:
    """The Pod template of one trainer."""
    trainer: dict[str, Any] = {"name": TRAINER_CONTAINER, "image": image}
    if command:
        trainer["command"] = list(command)
    if env:
        trainer["env"] = [{"name": name, "value": value} for name, value in env.items()]
    if limits:
        trainer["resources"] = {"limits": dict(limits)}
    return {"spec": {"containers": [trainer]}}


def _first_mistake(error: "ValidationError") -> str:
    fault = error.errors(include_url=False)[0]
    rule = fault.get("ctx", {}).get("error")
    where = ".".join(map(str, ("spec", *fault["loc"])))
    words = str(rule) if rule is not None else fault["msg"]
    if fault["type"] == "extra_forbidden":
        words = "unknown field"
    return printable(f"{where}: {words[:1].lower()}{words[1:]}")
