"""Saved models on the Hugging Face Hub: ``hf://user/name``, or ``hf://user/name@revision``.

A repository holds the files of a model's folder and nothing that runs when it is loaded. What is
read from there is checked like any folder: checksums, chain of the ledger, sizes. Needs
``discreet[hub]``.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from discreet.errors import ConfigError, DataError, PrivacyError
from discreet.models.storage.read_folder import MODEL

if TYPE_CHECKING:
    from discreet.models.base import Recommender

SCHEME = "hf://"
#: What a folder of `Recommender.save` consists of; nothing else of a repository is fetched.
_FILES = ["*.json", "*.safetensors", "README.md"]


def download(address: str) -> Path:
    """Fetch a model into the Hub's cache, unless it is there, and return its folder."""
    name, _, revision = address.removeprefix(SCHEME).partition("@")
    hub = _import_hub()
    try:
        return Path(hub.snapshot_download(name, revision=revision or None, allow_patterns=_FILES))
    except (hub.errors.HfHubHTTPError, hub.errors.HFValidationError, OSError) as error:
        raise DataError(f"{address} cannot be loaded: {_first_line(error)}") from error


def push(
    model: Recommender, name: str, *, replace: bool, private: bool | None, token: str | None
) -> str:
    """Upload a model; see `Recommender.push_to_hub`."""
    statement = getattr(model, "privacy_", None)
    if statement is None or not statement.private:
        raise PrivacyError(
            f"This {type(model).__name__} is not private, and nothing can be unpublished. Publish a"
            " model whose privacy_.private is True."
        )
    hub = _import_hub()
    api = hub.HfApi(token=token)
    try:
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary, "model")
            if api.repo_exists(name) and api.file_exists(name, MODEL):
                if not replace:
                    raise ConfigError(f"{name} has a model already: pass replace=True")
                # so that save() keeps the ledger of the model that is replaced
                api.snapshot_download(name, local_dir=folder, allow_patterns=_FILES)
                shutil.rmtree(folder / ".cache", ignore_errors=True)
            model.save(folder, replace=replace)
            api.create_repo(name, private=private, exist_ok=True)
            message = f"{type(model).__name__}, {statement.status}"
            done = api.upload_folder(repo_id=name, folder_path=folder, commit_message=message)
    except (hub.errors.HfHubHTTPError, hub.errors.HFValidationError) as error:
        raise DataError(f"{name} cannot be written: {_first_line(error)}") from error
    return f"{SCHEME}{name}@{done.oid}"


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]


def _import_hub() -> Any:
    try:
        import huggingface_hub
        import huggingface_hub.errors
    except ImportError as error:
        raise ConfigError(
            "The Hugging Face Hub needs huggingface-hub. Install it: pip install 'discreet[hub]'."
        ) from error
    return huggingface_hub
