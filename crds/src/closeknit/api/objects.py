"""Our kinds as whole objects: metadata, spec and status."""

import re
from typing import Annotated

from pydantic import Field, model_validator

from closeknit.api.clustertopology import ClusterTopologySpec, ClusterTopologyStatus
from closeknit.api.names import DEFAULT_NAMESPACE, JobKey
from closeknit.api.nodetopology import NodeTopologySpec
from closeknit.api.nodetopology_status import NodeTopologyStatus
from closeknit.api.trainingjob import JOB_NAME_MAX_LENGTH, JOB_NAME_MESSAGE, JOB_NAME_PATTERN, TrainingJobSpec
from closeknit.api.trainingjob_status import TrainingJobStatus
from closeknit.api.wire import FieldError, Timestamp, Wire


class ObjectMeta(Wire):
    """The few fields of metav1.ObjectMeta that closeknit reads."""

    name: str
    """Name of the object."""
    namespace: str | None = None
    """Namespace, of namespaced objects."""
    uid: str | None = None
    """UID; absent in files that no API server has seen."""
    resource_version: str | None = None
    """Opaque version for compare-and-swap."""
    generation: Annotated[int, Field(ge=0)] = 1
    """Number of the spec's version."""
    creation_timestamp: Timestamp | None = None
    """When the API server stored the object first."""
    deletion_timestamp: Timestamp | None = None
    """When its deletion was asked for."""
    labels: dict[str, str] = {}
    """Labels."""
    annotations: dict[str, str] = {}
    """Annotations."""


class TrainingJob(Wire):
    """A multi-GPU training job that is placed as one gang on GPUs that are close together."""

    metadata: ObjectMeta
    """Standard object metadata."""
    spec: TrainingJobSpec
    """What the user asks for."""
    status: TrainingJobStatus = TrainingJobStatus()
    """What closeknit says about the job."""

    @model_validator(mode="after")
    def _name_leaves_room_for_children(self) -> "TrainingJob":
        """The CEL rule of the CRD, said again for files that no API server has seen."""
        name = self.metadata.name
        if len(name) > JOB_NAME_MAX_LENGTH or not re.fullmatch(JOB_NAME_PATTERN, name):
            raise FieldError("metadata.name", JOB_NAME_MESSAGE)
        return self

    @property
    def key(self) -> JobKey:
        """Namespace and name; a file's job without a namespace is in default, as kubectl would have it."""
        return JobKey(self.metadata.namespace or DEFAULT_NAMESPACE, self.metadata.name)


class NodeTopology(Wire):
    """The GPUs, NVLinks, PCIe tree and RDMA NICs of one node, as its agent measured them."""

    metadata: ObjectMeta
    """Standard object metadata."""
    spec: NodeTopologySpec
    """What changes only with hardware or driver."""
    status: NodeTopologyStatus = NodeTopologyStatus()
    """What changes while the machine runs."""


class ClusterTopology(Wire):
    """The levels of the network between nodes; the object called default is used."""

    metadata: ObjectMeta
    """Standard object metadata."""
    spec: ClusterTopologySpec = ClusterTopologySpec()
    """Levels and fabric."""
    status: ClusterTopologyStatus = ClusterTopologyStatus()
    """What was found."""
