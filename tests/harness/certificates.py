"""Certificates for one test control plane: an authority of its own, and what it signs.

Everything is made in memory with elliptic-curve keys (a few milliseconds each) and is valid for one day.
"""

import datetime
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass, field

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

LIFETIME = datetime.timedelta(days=1)  # longer than any test run or demo session
CLOCK_SKEW = datetime.timedelta(minutes=5)


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A private key and what proves it (a certificate, or the bare public key), both as PEM."""

    private: bytes
    public: bytes


def _new_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def signing_key() -> KeyPair:
    """A key pair that signs ServiceAccount tokens."""
    key = _new_key()
    public = key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    return KeyPair(_pem(key), public)


@dataclass(frozen=True, slots=True)
class Authority:
    """Signs the API server's certificate and those that its users log in with."""

    _key: ec.EllipticCurvePrivateKey = field(default_factory=_new_key, repr=False)
    _name: x509.Name = field(default_factory=lambda: _name("closeknit test control plane"))

    @property
    def certificate(self) -> bytes:
        """The authority's own certificate as PEM: what a client needs to trust the API server."""
        builder = (
            self._builder(self._name, self._key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_key_usage(signs_certificates=True), critical=True)
        )
        return builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)

    def server(self, hosts: Sequence[str]) -> KeyPair:
        """A server's certificate for these DNS names and IP addresses."""
        names = x509.SubjectAlternativeName([_general_name(host) for host in hosts])
        return self._sign(_name(hosts[0]), names, x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]))

    def client(self, user: str, groups: Sequence[str] = ()) -> KeyPair:
        """What Kubernetes takes for a login as this user: the name is the CN, each group an O."""
        return self._sign(_name(user, groups), x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]))

    def _sign(self, name: x509.Name, *extensions: x509.ExtensionType) -> KeyPair:
        key = _new_key()
        builder = self._builder(name, key.public_key())
        builder = builder.add_extension(_key_usage(signs_certificates=False), critical=True)
        for extension in extensions:
            builder = builder.add_extension(extension, critical=False)
        certificate = builder.sign(self._key, hashes.SHA256())
        return KeyPair(_pem(key), certificate.public_bytes(serialization.Encoding.PEM))

    def _builder(self, subject: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        authority_key = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - CLOCK_SKEW)
            .not_valid_after(now + LIFETIME)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
            .add_extension(authority_key, critical=False)
        )


def _name(common_name: str, organizations: Sequence[str] = ()) -> x509.Name:
    groups = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in organizations]
    return x509.Name([*groups, x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
