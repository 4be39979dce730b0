"""What a template's volumes come to, at its edges: odd shapes, many volumes, and what makes another look necessary."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from closeknit.api.objects import TrainingJob
from closeknit.cluster.cluster import Cluster, build
from closeknit.cluster.job_volumes import MOST_FREE, MOST_VOLUMES, NO_VOLUMES, Volumes, sources
from closeknit.cluster.store.watched_kinds import change
from scenarios.manifests import claiming, storage_class, training_job, volume, volume_claim
from scenarios.views import parsed

Manifest = dict[str, Any]
LOCAL = "kubernetes.io/no-provisioner"
ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)
SPECS = st.dictionaries(
    st.sampled_from(("storageClassName", "accessModes", "resources", "selector", "volumeMode")), ANY, max_size=4
)
VOLUMES = st.fixed_dictionaries(
    {},
    optional={
        "name": ANY,
        "persistentVolumeClaim": ANY | st.fixed_dictionaries({"claimName": ANY}),
        "ephemeral": ANY | st.fixed_dictionaries({"volumeClaimTemplate": ANY | st.fixed_dictionaries({"spec": SPECS})}),
    },
)


def cluster(*manifests: Manifest) -> Cluster:
    return build(map(parsed, manifests))


def found(here: Cluster, template: Manifest | None = None) -> Volumes:
    return here.volumes_of(TrainingJob.parse(training_job(spec={"template": template or claiming("data")})))


@given(ANY | st.lists(VOLUMES | ANY, max_size=4))
def test_volumes_of_whatever_shape_are_read(volumes: Any) -> None:
    assert len(sources({"volumes": volumes})) <= MOST_VOLUMES


def test_a_job_without_claims_has_no_volumes() -> None:
    plain = {"spec": {"containers": [{"name": "trainer"}], "volumes": [{"name": "tmp", "emptyDir": {}}]}}
    assert found(cluster(), plain) is NO_VOLUMES


def test_a_disk_of_each_of_many_hosts_is_one_requirement() -> None:
    disks = [volume(f"disk-{number}", claim=None, hosts=[f"host-{number}"]) for number in range(500)]
    here = cluster(volume_claim(), storage_class(provisioner=LOCAL), *disks)
    (reach,) = found(here).reach
    ((label,),) = (term.labels for term in reach.nodes.terms)
    assert label.values == {f"host-{number}" for number in range(500)}
    assert found(here).words == (
        "PersistentVolumeClaim data (StorageClass fast) is only on nodes whose kubernetes.io/hostname is host-0, "
        "host-1, host-10, host-100, host-101, host-102, host-103, host-104 and 492 more"
    )


def test_of_too_many_disks_the_scheduler_has_the_last_word() -> None:
    disks = [volume(f"disk-{number}", claim=None, hosts=["host"]) for number in range(MOST_FREE + 1)]
    assert found(cluster(volume_claim(), storage_class(provisioner=LOCAL), *disks)) == Volumes()


def test_what_says_more_than_is_looked_at_keeps_nobody_away() -> None:
    far = volume("disk")
    expressions = [{"key": f"label-{number}", "operator": "Exists"} for number in range(65)]
    far["spec"]["nodeAffinity"] = {"required": {"nodeSelectorTerms": [{"matchExpressions": expressions}]}}
    assert found(cluster(volume_claim(volume="disk"), far)) == Volumes()


BEFORE = (volume_claim(volume="disk"), volume("disk", zones=["a"]), storage_class("other"))
NEWS = {
    "the claim": volume_claim(),
    "its volume": volume("disk", zones=["b"]),
    "another claim": volume_claim("other", volume="disk"),
    "another namespace's": volume_claim(namespace="team-c"),
    "another volume": volume("more", claim=None),
    "a class": storage_class(),
}


@pytest.mark.parametrize(("what", "manifest"), NEWS.items(), ids=NEWS.keys())
def test_another_look_is_taken_at_what_was_looked_at(what: str, manifest: Manifest) -> None:
    here = cluster(*BEFORE)
    volumes = found(here)
    after = here.after([change(parsed(manifest))])
    assert after.volumes_stand(volumes) is (what not in {"the claim", "its volume"})
    assert here.is_same(after) is False


def test_where_nobody_tells_of_claims_nothing_is_said_of_any() -> None:
    assert found(build((), volumes_are_known=False)) is NO_VOLUMES
