"""A fresh key pair for ssh. It is made where it is sent, and kept nowhere: no Plan, log or memory ever has it."""

from base64 import b64encode

from closeknit.launch.frameworks.ssh import PRIVATE_KEY, PUBLIC_KEY
from closeknit.launch.gang import Manifest


def with_key_pair(secret: Manifest) -> Manifest:
    """The Secret with a key pair of its own, Ed25519 in OpenSSH's format; what was given is not changed."""
    # Only there: most jobs need none, and it takes 6 MB.
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey  # noqa: PLC0415
    from cryptography.hazmat.primitives.serialization import (  # noqa: PLC0415
        Encoding,
        NoEncryption,
        PrivateFormat,
        PublicFormat,
    )

    key = Ed25519PrivateKey.generate()
    private = key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
    public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    data = {PRIVATE_KEY: b64encode(private).decode(), PUBLIC_KEY: b64encode(public + b"\n").decode()}
    return {**secret, "data": data}
