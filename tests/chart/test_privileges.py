"""docs/security.md says what each identity may do: compared with what a real API server answers."""

from harness.install import install
from harness.local_cluster import LocalCluster
from harness.privileges import audit, written

# Kubernetes' own role `admin` writes Events by both of their groups since then (bootstrappolicy/policy.go).
BOTH_GROUPS_SINCE = (1, 35)


def test_the_page_has_what_the_api_server_answers(local_cluster: LocalCluster) -> None:
    install(local_cluster)
    page = written()
    if local_cluster.kubernetes < BOTH_GROUPS_SINCE:
        assert page.count("`events.events.k8s.io`, `horizontalpodautoscalers") == 1
        page = page.replace("`events.events.k8s.io`, `horizontalpodautoscalers", "`horizontalpodautoscalers")
    assert page == audit(local_cluster), "make privileges writes it again"
