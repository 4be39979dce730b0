"""Simulated machines, for demos and tests without GPUs, and the files that describe them."""

import re
from collections.abc import Sequence
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from closeknit.agent.discovery.readings.activity import LiveGpu
from closeknit.agent.discovery.readings.byte_counters import NO_TRAFFIC, ByteCounters
from closeknit.agent.discovery.readings.readings import Readings
from closeknit.agent.discovery.simulated.profile import NO_FAULTS, Faults, Profile, ProfileError
from closeknit.agent.discovery.simulated.simulation import readings_of
from closeknit.agent.sources.source import SourceError
from closeknit.agent.sysfs.folder import root_folder
from closeknit.agent.sysfs.kubelet_config import policies
from closeknit.api.nodetopology import Method
from closeknit.api.text.nesting import MAX_DEPTH, is_deeper

_ALIAS = re.compile(r"(?:^|[\s\[{,])\*[^\s,\[\]{}]", re.MULTILINE)

AT_REST_CELSIUS, AT_REST_MILLIWATTS = 30, 75_000  # of an H200 (docs/measurements)


class SimulatedSource:
    """A machine of a profile, with faults if wanted."""

    method = Method.SIMULATED

    def __init__(self, profile: Profile, node: str, faults: Faults = NO_FAULTS, root: Path | None = None) -> None:
        """`root`: below it is the configuration of the kubelet, which is real where there is one."""
        self._profile = profile
        self._root = root
        self._node = node
        self._faults = faults
        self._readings: Readings | None = None  # made once: a process may play a thousand machines

    def read(self) -> Readings:
        """The same readings every time, but for the kubelet's policies. Raises SourceError for faults that the machine
        cannot have."""
        try:
            self._readings = self._readings or readings_of(self._profile, self._node, self._faults)
        except ProfileError as error:
            raise SourceError(f"node {self._node}: {error}") from error
        told = {} if self._root is None else policies(root_folder(self._root, {}))
        return replace(self._readings, kernel=replace(self._readings.kernel, **told)) if told else self._readings

    def live(self) -> tuple[LiveGpu, ...]:
        """A simulated GPU is at rest; a dead one says nothing."""
        gpus = () if self._readings is None else self._readings.gpus
        return tuple(
            LiveGpu(gpu.index, gpu.uuid, 0, 0, AT_REST_CELSIUS, AT_REST_MILLIWATTS) for gpu in gpus if gpu.uuid
        )

    def traffic(self, gpus: Sequence[str]) -> ByteCounters:  # noqa: ARG002 -- it is the protocol's
        """None, as well."""
        return NO_TRAFFIC


def profile_names() -> list[str]:
    """The profiles that exist, by name."""
    return sorted(path.name.removesuffix(".yaml") for path in _folder().iterdir() if path.name.endswith(".yaml"))


def load_profile(name: str) -> Profile:
    """The profile of that name. Raises ProfileError."""
    if name not in profile_names():
        raise ProfileError(f"there is no machine profile {name!r}; known: {', '.join(profile_names())}")
    try:
        return msgspec.convert(read_yaml(_folder().joinpath(f"{name}.yaml").read_text()), Profile)
    except ValueError as error:
        raise ProfileError(f"profile {name}: {error}") from error


def load_faults(text: str) -> Faults:
    """The faults that a YAML text names as a fleet file does: `{deadGPUs: [2], nicsDown: [mlx5_0]}`.

    Raises ValueError.
    """
    try:
        return msgspec.convert(read_yaml(text), Faults)
    except ValueError as error:
        raise ValueError(f"--faults: {error}") from error


def read_yaml(text: str) -> Any:
    """The value of a YAML document. Raises ValueError."""
    import ryaml  # noqa: PLC0415 -- `dump` and the NVML source run where it is not installed

    if is_deeper(text.encode()):  # its reader takes hours for a megabyte of brackets
        raise ValueError(f"it is nested deeper than {MAX_DEPTH} levels")
    if _ALIAS.search(text):  # a few kilobytes of them may stand for gigabytes
        raise ValueError("YAML aliases are not read here")
    try:
        return ryaml.loads(text)
    except ryaml.InvalidYamlError as error:
        raise ValueError(str(error)) from error


def _folder() -> Traversable:
    return resources.files("closeknit.agent").joinpath("profiles")
