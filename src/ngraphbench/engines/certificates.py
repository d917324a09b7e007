"""Certificates of one fleet: an authority of its own, short-lived ones for every part.

Whoever holds a certificate of the authority can run code on every device: that is what the
scheduler does for clients. So the authority signs for one fleet alone, its key stays where it was
made, and what it signs ends soon.
"""

from __future__ import annotations

import datetime
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ngraphbench.errors import ClusterError
from ngraphbench.places import own_folder

__all__ = ["DAYS", "Certificates", "certificates_folder", "make_certificates"]

DAYS = 30
"""How long a certificate is good for unless told otherwise."""
AUTHORITY_DAYS = 3650
CERTS_VARIABLE = "NGRAPHBENCH_CERTS"

CA, CERT, KEY = "ca.pem", "cert.pem", "key.pem"
CA_KEY = "ca-key.pem"
_CLOCKS_DIFFER = datetime.timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Certificates:
    """The three files of one part of a fleet, in one folder."""

    folder: Path

    @property
    def ca(self) -> Path:
        return self.folder / CA

    @property
    def cert(self) -> Path:
        return self.folder / CERT

    @property
    def key(self) -> Path:
        return self.folder / KEY

    def check(self) -> Certificates:
        """Return them if all are there. Raises ClusterError."""
        absent = [path.name for path in (self.ca, self.cert, self.key) if not path.is_file()]
        if absent:
            raise ClusterError(
                f"There are no certificates in {self.folder}: {', '.join(absent)} missing.",
                reason="certificates",
                hint="`ngb cluster certs` makes them; name their folder with --certs.",
            )
        return self


def certificates_folder(given: Path | None = None) -> Path:
    """Return the folder of this part's certificates: the one given, or the default one."""
    if given is not None:
        return given
    folder = own_folder(CERTS_VARIABLE, "XDG_CONFIG_HOME", "certs")
    if folder is None:
        raise ClusterError(
            "This user has no home folder in which certificates would be.",
            reason="certificates",
            hint=f"Name their folder with --certs, or set HOME or {CERTS_VARIABLE}.",
        )
    return folder


def make_certificates(folder: Path, devices: Sequence[str], *, days: int = DAYS) -> list[Path]:
    """Return the folders made below ``folder``: ``scheduler``, ``client`` and one per device.

    The authority is made where there is none yet; what it signed before is replaced. Every file
    can be read by its owner alone. Raises ClusterError.
    """
    authority = _authority(folder)
    made = []
    for name in ("scheduler", "client", *(f"device-{device}" for device in devices)):
        part = folder / name
        part.mkdir(mode=0o700, parents=True, exist_ok=True)
        both = name != "client"
        cert, key = _signed(authority, f"ngraphbench {name}", days=days, serves=both)
        _write(part / CA, _pem(authority[0]))
        _write(part / CERT, _pem(cert))
        _write(part / KEY, _key_pem(key))
        made.append(part)
    return made


def _authority(folder: Path) -> tuple[Any, Any]:
    """Return the authority's certificate and key, made at first use."""
    x509, ec, serialization = _cryptography()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    cert_path, key_path = folder / CA, folder / CA_KEY
    if key_path.exists():
        try:
            cert = x509.load_pem_x509_certificate(cert_path.read_bytes())
            return cert, serialization.load_pem_private_key(key_path.read_bytes(), None)
        except (OSError, ValueError, TypeError) as error:
            raise ClusterError(
                f"The authority in {folder} cannot be read: {error}.",
                reason="certificates",
                hint="Restore its two files, or choose another folder for a new authority.",
            ) from error
    key = ec.generate_private_key(ec.SECP256R1())
    name = _name("ngraphbench fleet authority")
    cert = (
        _builder(name, name, key, days=AUTHORITY_DAYS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs=True), critical=True)
        .add_extension(_key_name(key), critical=False)
        .sign(key, _sha256())
    )
    _write(key_path, _key_pem(key))
    _write(cert_path, _pem(cert))
    return cert, key


def _signed(authority: tuple[Any, Any], text: str, *, days: int, serves: bool) -> tuple[Any, Any]:
    """Return a certificate and its key; ``serves``: its holder may also be connected to."""
    x509, ec, _ = _cryptography()
    cert, signer = authority
    key = ec.generate_private_key(ec.SECP256R1())
    purposes = _purposes(serves)
    made = (
        _builder(_name(text), cert.subject, key, days=days)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(purposes), critical=True)
        .add_extension(_key_name(key), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False
        )
        .sign(signer, _sha256())
    )
    return made, key


def _purposes(serves: bool) -> list[Any]:
    from cryptography.x509.oid import ExtendedKeyUsageOID

    client = [ExtendedKeyUsageOID.CLIENT_AUTH]
    return [*client, ExtendedKeyUsageOID.SERVER_AUTH] if serves else client


def _builder(subject: Any, issuer: Any, key: Any, *, days: int) -> Any:
    x509, _, _ = _cryptography()
    now = datetime.datetime.now(datetime.timezone.utc)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCKS_DIFFER)
        .not_valid_after(now + datetime.timedelta(days=days))
    )


def _usage(*, signs: bool) -> Any:
    x509, _, _ = _cryptography()
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=signs,
        crl_sign=signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _key_name(key: Any) -> Any:
    x509, _, _ = _cryptography()
    return x509.SubjectKeyIdentifier.from_public_key(key.public_key())


def _name(text: str) -> Any:
    x509, _, _ = _cryptography()
    from cryptography.x509.oid import NameOID

    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _sha256() -> Any:
    from cryptography.hazmat.primitives import hashes

    return hashes.SHA256()


def _pem(cert: Any) -> bytes:
    _, _, serialization = _cryptography()
    data: bytes = cert.public_bytes(serialization.Encoding.PEM)
    return data


def _key_pem(key: Any) -> bytes:
    _, _, serialization = _cryptography()
    data: bytes = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    return data


def _write(path: Path, data: bytes) -> None:
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        os.fchmod(descriptor, 0o600)
        file.write(data)


def _cryptography() -> tuple[Any, Any, Any]:
    try:
        from cryptography import x509
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ec
    except ImportError as error:
        raise ClusterError(
            "Making certificates needs the package cryptography, which is not installed.",
            reason="extra",
            hint="pip install 'ngraphbench[cluster]'",
        ) from error
    return x509, ec, serialization
