"""The user's variables that the NCCL of a gang's Pods does not read, once its version is known."""

from closeknit.api.names import Role
from closeknit.launch.environment.nccl_versions import READ_BY, is_read, read_by
from closeknit.launch.environment.user_overrides import HarmfulSetting
from closeknit.launch.gang import Gang


def unread(gang: Gang) -> tuple[HarmfulSetting, ...]:
    """One line for each, by name: older than the variable, newer than its end, or older than its value."""
    version, users = gang.nccl_version, gang.users_environment(Role.WORKER)
    if version is None:
        return ()
    found: list[HarmfulSetting] = []
    for name in sorted(READ_BY.keys() & users.keys()):
        entry = users[name]
        value = None if entry.get("valueFrom") else entry.get("value") or ""
        if not is_read(name, value, version):
            why = f"its Pods have NCCL {version}, to which this means nothing: {read_by(name, value)} read it"
            found.append(HarmfulSetting(name, value, f"{why}; take another image, or leave it out"))
    return tuple(found)
