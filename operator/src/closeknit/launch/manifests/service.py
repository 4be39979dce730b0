"""The headless Service of one attempt."""

from closeknit.launch.gang import Gang, Manifest


def service(gang: Gang) -> Manifest:
    """The Service under which the Pods of one attempt find each other by host name.

    It publishes Pods that are not ready, because ranks meet before anything could call them ready. It has no port:
    a headless Service only names hosts, and the port of the rendezvous is the launcher's business.
    """
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": gang.metadata(gang.service, gang.labels, gang.owner),
        "spec": {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": gang.labels},
    }
