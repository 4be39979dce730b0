"""docs/security.md says what each identity may do: compared with what a real API server answers."""

from harness.install import install
from harness.local_cluster import LocalCluster
from harness.privileges import audit, written


def test_the_page_has_what_the_api_server_answers(local_cluster: LocalCluster) -> None:
    install(local_cluster)
    assert written() == audit(local_cluster), "make privileges writes it again"
