"""Signatures of run folders: Ed25519 over the run's hash, which covers every file. Needs the extra ``sign``."""

from __future__ import annotations

import base64
import json
import os
from pathlib import Path
from typing import Any

from krepes.errors import InvalidInputError, RunFolderError
from krepes.runs.store import SIGNATURE, read_file, read_manifest
from krepes.storage.files import publish

PURPOSE = b"krepes run folder\0"


def sign_run(folder: str | Path, key_file: str | Path) -> Path:
    """Sign a run.

    Args:
        folder: The run; all its hashes are checked first.
        key_file: A private key in PEM without a password; made, readable by its owner alone, if it does not exist.

    Returns:
        The file of the public key.
    """
    _, serialization = _library()
    claimed = _checked(folder)
    key = _private_key(Path(key_file))
    public = Path(f"{key_file}.pub")
    text = key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    publish(public, lambda path: path.write_bytes(text))
    signature = base64.b64encode(key.sign(PURPOSE + claimed.encode())).decode()
    content = json.dumps({"run_sha256": claimed, "ed25519": signature}, indent=2, sort_keys=True) + "\n"
    publish(Path(folder) / SIGNATURE, lambda path: path.write_text(content))
    return public


def verify_run(folder: str | Path, key_file: str | Path | None = None) -> str:
    """Check every hash of a run, and its signature.

    Args:
        folder: The run.
        key_file: The signer's public key in PEM; ``None`` checks the hashes alone.

    Returns:
        What was found, in a sentence.

    Raises:
        RunFolderError: If a hash or the signature does not hold.
        InvalidInputError: If the key cannot be read.
    """
    claimed = _checked(folder)
    if key_file is None:
        return f"{folder}: every file has the hash that the manifest states ({claimed[:16]}). No signature was checked."
    _, serialization = _library()
    from cryptography.exceptions import InvalidSignature

    try:
        stated = json.loads((Path(folder) / SIGNATURE).read_text())
        signature = base64.b64decode(stated["ed25519"], validate=True)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RunFolderError(f"{folder} has no readable signature ({error}). Ask its maker to sign it.") from error
    try:
        key: Any = serialization.load_pem_public_key(Path(key_file).read_bytes())
    except (OSError, ValueError, TypeError) as error:
        raise InvalidInputError(f"--key: {key_file} is no public key in PEM ({error}).") from error
    try:
        key.verify(signature, PURPOSE + claimed.encode())
    except (InvalidSignature, TypeError, AttributeError) as error:
        raise RunFolderError(f"{folder} was not signed by the owner of {key_file}, or was changed since.") from error
    return f"{folder}: every file has its hash, and the owner of {key_file} signed it ({claimed[:16]})."


def _checked(folder: str | Path) -> str:
    manifest = read_manifest(folder)
    for name in manifest["files"]:
        read_file(folder, manifest, name)
    return str(manifest["run_sha256"])


def _private_key(path: Path) -> Any:
    ed25519, serialization = _library()
    if not path.exists():
        key = ed25519.Ed25519PrivateKey.generate()
        private = serialization.PrivateFormat.PKCS8
        text = key.private_bytes(serialization.Encoding.PEM, private, serialization.NoEncryption())
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "wb") as file:
            file.write(text)
        return key
    try:
        found = serialization.load_pem_private_key(path.read_bytes(), password=None)
    except (OSError, ValueError, TypeError) as error:
        raise InvalidInputError(f"--key: {path} is no private key in PEM without a password ({error}).") from error
    if not isinstance(found, ed25519.Ed25519PrivateKey):
        raise InvalidInputError(f"--key: {path} holds a {type(found).__name__}, an Ed25519 key is required.")
    return found


def _library() -> tuple[Any, Any]:
    try:
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ImportError as error:
        raise InvalidInputError("signatures need the package cryptography: pip install 'krepes[sign]'.") from error
    return ed25519, serialization
