"""docs/security.md says what each identity may do: compared with what a real API server answers."""

from harness.install import install
from harness.local_cluster import LocalCluster
from harness.privileges import audit, written

# Kubernetes' own role `admin` writes Events by both of their groups since then (bootstrappolicy/policy.go).
BOTH_GROUPS_SINCE = (1, 35)
# Since then DeviceTaintRules are served, which the operator's role names, and service accounts may read trust bundles
# (audited on 1.37.2).
MORE_IS_SERVED_SINCE = (1, 37)
SERVICE_ACCOUNTS = 4  # on the page
TRUST_BUNDLES = "| cluster | get, list, watch | `clustertrustbundles.certificates.k8s.io` |\n"


def test_the_page_has_what_the_api_server_answers(local_cluster: LocalCluster) -> None:
    install(local_cluster)
    page = written()
    if local_cluster.kubernetes < BOTH_GROUPS_SINCE:
        assert page.count("`events.events.k8s.io`, `horizontalpodautoscalers") == 1
        page = page.replace("`events.events.k8s.io`, `horizontalpodautoscalers", "`horizontalpodautoscalers")
    found = audit(local_cluster)
    if local_cluster.kubernetes >= MORE_IS_SERVED_SINCE:
        assert found.count(TRUST_BUNDLES) == SERVICE_ACCOUNTS
        assert found.count("`devicetaintrules.resource.k8s.io`, ") == 1
        found = found.replace(TRUST_BUNDLES, "").replace("`devicetaintrules.resource.k8s.io`, ", "")
    assert page == found, "make privileges writes it again"
