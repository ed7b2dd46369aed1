"""Downloads, only when a user asks (`jaxarch data NAME --download`); no other file uses the network."""

from __future__ import annotations

import importlib
import os
import socket
import tempfile
import threading
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import getproxies

from jaxarch import ArgumentError
from jaxarch.lab.checks import one_line

PATIENCE = 5.0
"""Seconds to wait for a host: TFDS itself would try for minutes."""


def download_with_tfds(module: str, builder: str, folder: Path) -> Path:
    """Fetch the files of a TFDS builder without TensorFlow; TFDS checks its registered checksums.

    Args:
      module: the module of the builder.
      builder: the name of the builder.
      folder: the folder for the files, named by the last part of their addresses. They are moved there once
        all are downloaded.

    Returns:
      The folder.

    Raises:
      ArgumentError: a package that is not installed, a host that does not answer within seconds, a file with
        another checksum, a folder that cannot be written.
    """
    try:
        import tensorflow_datasets as tfds
        from tensorflow_datasets.core.download.download_manager import NonMatchingChecksumError
        from tensorflow_datasets.core.download.extractor import ExtractError
        from tensorflow_datasets.core.download.util import DownloadError

        infos = getattr(importlib.import_module(module), builder).url_infos
    except ModuleNotFoundError as error:
        raise ArgumentError(
            f"download: cannot download without {error.name}; pip install 'jaxarch[data]'"
        ) from None
    check_reachable(next(iter(infos)))
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as partial:
            manager = tfds.download.DownloadManager(
                download_dir=partial, url_infos=infos, force_checksums_validation=True
            )
            # Download one after the other: in parallel, the others would go on after one has failed.
            files = {url.rsplit("/", 1)[-1]: manager.download(url) for url in infos}
            folder.mkdir(exist_ok=True)
            for name, file in files.items():
                os.replace(file, folder / name)
    except (OSError, NonMatchingChecksumError, ExtractError, DownloadError, ModuleNotFoundError) as error:
        raise ArgumentError(
            f"download: cannot download {builder} into {folder} ({one_line(error)})"
        ) from None
    return folder


def check_reachable(url: str) -> None:
    """Raise unless a connection to the host of an address (or to the proxy for it) opens within seconds.

    The connection is tried in a thread, since nothing bounds the time of a name lookup.

    Raises:
      ArgumentError: no connection; names the host.
    """
    target = urlsplit(getproxies().get(urlsplit(url).scheme) or url)
    opened = threading.Event()

    def connect() -> None:
        try:
            port = target.port or (80 if target.scheme == "http" else 443)
            socket.create_connection((target.hostname or "", port), PATIENCE).close()
            opened.set()
        except OSError:
            pass

    attempt = threading.Thread(target=connect, daemon=True)
    attempt.start()
    attempt.join(PATIENCE)
    if not opened.is_set():
        raise ArgumentError(f"download: no connection to {target.hostname}; is this machine online?")
