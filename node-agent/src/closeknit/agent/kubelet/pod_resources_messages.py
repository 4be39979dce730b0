"""The messages of the kubelet's PodResources API, version v1, in the fields that are read.

Declared here instead of generated: seven messages of numbered fields, which never change within v1. What is not named
here is skipped by the decoder. Origin: api.proto of k8s.io/kubelet/pkg/apis/podresources/v1, Kubernetes 1.36.
"""

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_PACKAGE = "v1"
_STRING = "string"
# Message -> its fields: name, number, and what it holds; all but strings in lists of any length.
_MESSAGES = {
    "ListPodResourcesRequest": (),
    "ListPodResourcesResponse": (("pod_resources", 1, "PodResources"),),
    "PodResources": (("name", 1, _STRING), ("namespace", 2, _STRING), ("containers", 3, "ContainerResources")),
    "ContainerResources": (
        ("name", 1, _STRING),
        ("devices", 2, "ContainerDevices"),
        ("dynamic_resources", 5, "DynamicResource"),
    ),
    "ContainerDevices": (("resource_name", 1, _STRING), ("device_ids", 2, "string[]")),
    "DynamicResource": (("claim_resources", 4, "ClaimResource"),),
    # Not cdi_devices (1): the kubelet repeats there the devices of the claim that came before.
    "ClaimResource": (("driver_name", 2, _STRING), ("pool_name", 3, _STRING), ("device_name", 4, _STRING)),
}


def _message_classes() -> dict[str, Any]:
    file = descriptor_pb2.FileDescriptorProto(name="closeknit/podresources.proto", package=_PACKAGE, syntax="proto3")
    kinds = descriptor_pb2.FieldDescriptorProto
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for field, number, holds in fields:
            declared = message.field.add(name=field, number=number, label=kinds.LABEL_REPEATED, type=kinds.TYPE_STRING)
            if holds == _STRING:
                declared.label = kinds.LABEL_OPTIONAL
            elif holds != "string[]":
                declared.type, declared.type_name = kinds.TYPE_MESSAGE, f".{_PACKAGE}.{holds}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    named = {name: pool.FindMessageTypeByName(f"{_PACKAGE}.{name}") for name in _MESSAGES}
    return {name: message_factory.GetMessageClass(descriptor) for name, descriptor in named.items()}


_CLASSES = _message_classes()
ListPodResourcesRequest = _CLASSES["ListPodResourcesRequest"]
ListPodResourcesResponse = _CLASSES["ListPodResourcesResponse"]
LIST = f"/{_PACKAGE}.PodResourcesLister/List"
