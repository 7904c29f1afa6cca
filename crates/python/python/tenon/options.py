"""The options of a volume."""

from __future__ import annotations

import os
from typing import Literal, TypedDict


class VolumeOptions(TypedDict, total=False):
    """Options of :class:`tenon.Volume` and of the fsspec file system. What is not given comes from the environment and the AWS files."""

    #: URL of the server; AWS by default.
    endpoint_url: str | None
    #: Region of the bucket.
    region: str | None
    #: Profile in the AWS files.
    profile: str | None
    #: Access key, with ``secret`` and, for temporary credentials, ``token``.
    key: str | None
    secret: str | None
    token: str | None
    #: Send requests without a signature.
    anon: bool | None
    #: Where URLs name the bucket.
    addressing: Literal["path", "virtual"] | None
    #: PEM file of authorities to trust in addition.
    ca_bundle: str | os.PathLike[str] | None
    #: Seconds for which a failing request is repeated (30).
    retry_timeout: float | None
    #: Refuse every change.
    read_only: bool | None
    #: Limit of data and metadata in memory, in bytes (1 GiB, at least 64 MiB).
    memory_limit: int | None
    #: Seconds for which cached names and attributes are valid (5).
    metadata_ttl: float | None
    #: Read owner, mode and time of each object from its headers.
    exact_attributes: bool | None
    #: Directory on a local disk for a cache of what is read. It outlives the process, and processes and mounts may share it.
    cache_dir: str | os.PathLike[str] | None
    #: Limit of the disk cache in bytes (10 GiB, at least 256 MiB).
    cache_size: int | None
    #: Bucket near the machines for a cache that they share, ``s3://bucket/prefix``. Needs ``cache_dir``.
    shared_cache: str | None
    #: Profile in the AWS files with the server and credentials of the shared cache.
    shared_cache_profile: str | None
    #: State directory, which one process at a time can use.
    state_dir: str | os.PathLike[str] | None
