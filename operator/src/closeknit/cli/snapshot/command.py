"""`closeknit snapshot`: writes a cluster as a file that `--cluster` takes."""

from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec
import yaml

from closeknit.api.text.printable import printable
from closeknit.cli.input.given import Reach
from closeknit.cli.input.manifest import manifests
from closeknit.cli.input.not_there import NotThere
from closeknit.cli.live.cluster_connection import NOT_INSTALLED, no_planner, reached
from closeknit.cli.snapshot.kept_fields import kept
from closeknit.cli.snapshot.pseudonyms import Pseudonyms
from closeknit.cluster.store.watched_kinds import KINDS, Kind
from closeknit.kube.api import Resource
from closeknit.kube.errors import Forbidden, NotFound
from closeknit.kube.http.http_api import HttpApi

_HEAD = """\
# A snapshot of closeknit {version}: what decisions read of a cluster, {how}.
# Left out are commands, variables, images, annotations, messages, addresses. Names of levels, products, resources
# and DRA devices are the true ones. Look through it before you send it; `closeknit plan --cluster FILE` and the like
# take it.
"""


async def snapshot(reach: Reach, cluster: Path | None, *, is_anonymous: bool) -> str:
    """The file. Raises BadInput and NotThere."""
    bodies = _recorded(cluster, reach) if cluster is not None else await _live(reach)
    return written(bodies, is_anonymous=is_anonymous)


def put(text: str, file: Path | None) -> None:
    """Writes it to a file, or prints it. Raises NotThere."""
    if file is None:
        print(text, end="")
        return
    try:
        file.write_text(text)
    except OSError as error:
        raise NotThere(printable(f"{file} cannot be written: {error.strerror}")) from None


def written(bodies: Sequence[dict[str, Any]], *, is_anonymous: bool) -> str:
    """The file."""
    objects = [found for body in bodies if (found := kept(body)) is not None]
    if is_anonymous:
        names = Pseudonyms(objects)
        objects = [names.of(each) for each in objects]
    how = "with other names" if is_anonymous else "with its true names"
    items = {"apiVersion": "v1", "kind": "List", "items": objects}
    body = yaml.dump(items, Dumper=_Dumper, sort_keys=False, width=120)
    return _HEAD.format(version=version("closeknit"), how=how) + body


class _Dumper(yaml.CSafeDumper):
    """Without references, which are hard to read."""

    def ignore_aliases(self, data: object) -> bool:
        """All are written out."""
        del data
        return True


def _recorded(cluster: Path, reach: Reach) -> list[dict[str, Any]]:
    reach.check_not_asked("--cluster")
    return [each.body for each in manifests(cluster)]


async def _live(reach: Reach) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    async with reached(reach, missing=NOT_INSTALLED) as api:
        for kind in KINDS:
            with suppress(*((NotFound,) if kind.group else ())):
                try:
                    found += [each async for each in _pages(api, kind)]
                except Forbidden as error:
                    if not kind.may_be_unserved:
                        raise no_planner(error) from None
    return found


async def _pages(api: HttpApi, kind: Kind) -> AsyncIterator[dict[str, Any]]:
    resource = Resource(kind.group, kind.version, kind.plural, namespaced=kind.namespaced)
    token: str | None = None
    while True:
        page = await api.list(
            resource, continue_token=token, field_selector=kind.field_selector, label_selector=kind.label_selector
        )
        for item in page.items:
            yield {"apiVersion": resource.api_version, "kind": kind.kind, **msgspec.json.decode(item)}
        token = page.continue_token
        if token is None:
            return
