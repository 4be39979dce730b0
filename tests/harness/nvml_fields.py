"""The numbers of NVML's fields (nvml.h), and which of its calls answer one number."""

# C function -> field of a GPU's reading, for those that answer one number
NUMBERS = {
    "nvmlDeviceGetMinorNumber": "minor",
    "nvmlDeviceGetArchitecture": "architecture",
    "nvmlDeviceGetModuleId": "module_id",
    "nvmlDeviceGetMaxPcieLinkGeneration": "max_pcie_generation",
    "nvmlDeviceGetMaxPcieLinkWidth": "max_pcie_width",
    "nvmlDeviceGetVirtualizationMode": "virtualization_mode",
}
LINK_NUMBERS = {
    "nvmlDeviceGetNvLinkState": "state",
    "nvmlDeviceGetNvLinkVersion": "version",
    "nvmlDeviceGetNvLinkRemoteDeviceType": "remote_type",
}
STATE_FIELD, SPEED_FIELD, C2C_COUNT_FIELD, C2C_SPEED_FIELD = 165, 164, 170, 172
OLD_SPEED_FIELDS = (*range(84, 90), *range(132, 138))
SENT_FIELD, ALL_LINKS = 138, 0xFFFFFFFF
HEALTH_FIELDS = {230: "recovery_action"}
LINK_ERROR_FIELDS = (59, 162, 214)
UINT = 1  # nvmlValueType_t
VALUE_MEMBERS = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
