"""Creates the BMC's certificate and its only account at the first start."""

from __future__ import annotations

import datetime
import ipaddress
import os
import secrets
from pathlib import Path

import bcrypt
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

# Validity of the certificate. Only the lab's own playbooks trust it.
DAYS = 3650


def write_secret(path: Path, content: bytes) -> None:
    """Write a file that other users can never read."""
    path.unlink(missing_ok=True)
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(content)


def make_account(folder: Path, user: str) -> None:
    """Create a random password if there is none, and the file with its hash for the emulator."""
    password = folder / "password"
    if not password.exists():
        write_secret(password, secrets.token_urlsafe(24).encode())
    # The fewest rounds: the password has 192 random bits, and each request computes the hash.
    digest = bcrypt.hashpw(password.read_bytes(), bcrypt.gensalt(rounds=4)).decode()
    write_secret(folder / "htpasswd", f"{user}:{digest}\n".encode())


def make_certificate(folder: Path) -> None:
    """Create a key and a self-signed certificate for the loopback address, if there is none."""
    certificate = folder / "certificate.pem"
    if certificate.exists():
        return
    key = ec.generate_private_key(ec.SECP256R1())
    write_secret(
        folder / "key.pem",
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        ),
    )
    certificate.write_bytes(_signed_by_itself(key).public_bytes(serialization.Encoding.PEM))


def _signed_by_itself(key: ec.EllipticCurvePrivateKey) -> x509.Certificate:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "virtual lab BMC")])
    now = datetime.datetime.now(datetime.UTC)
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    unused = dict.fromkeys(
        (
            "content_commitment",
            "key_encipherment",
            "data_encipherment",
            "key_agreement",
            "crl_sign",
            "encipher_only",
            "decipher_only",
        ),
        False,
    )
    extensions: list[tuple[x509.ExtensionType, bool]] = [
        (
            x509.SubjectAlternativeName(
                [x509.IPAddress(ipaddress.ip_address("127.0.0.1")), x509.DNSName("localhost")]
            ),
            False,
        ),
        # Newer Python versions require these extensions of an issuer's certificate.
        (x509.BasicConstraints(ca=True, path_length=0), True),
        (x509.KeyUsage(digital_signature=True, key_cert_sign=True, **unused), True),
        (identifier, False),
        (x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier), False),
    ]
    builder = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=DAYS))
    )
    for extension, critical in extensions:
        builder = builder.add_extension(extension, critical=critical)
    return builder.sign(key, hashes.SHA256())
