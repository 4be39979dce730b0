"""`python -m closeknit.runtime.own_certificate`: makes a key and a certificate that it signs itself, and prints both.

A program of its own: what makes certificates takes 13 MB of memory, and an agent on every node needs it for a moment.
"""

import sys
from datetime import UTC, datetime, timedelta
from socket import gethostname

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

# Longer than any process lives: nobody can check it but by having seen it, and it goes with its process.
LIFETIME = timedelta(days=3650)
CLOCK_SKEW = timedelta(hours=1)


def made(host: str, now: datetime) -> bytes:
    """Key and certificate for a host, as PEM one after the other. ECDSA with P-256: a handshake takes 0.5 ms."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host[:64])])
    builder = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_SKEW)
        .not_valid_after(now + LIFETIME)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(host)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    )
    pem = serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return private + builder.sign(key, hashes.SHA256()).public_bytes(pem)


if __name__ == "__main__":
    sys.stdout.buffer.write(made(gethostname(), datetime.now(UTC)))
