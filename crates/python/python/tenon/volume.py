"""Volumes: the operations of POSIX, and many operations in one call."""

from __future__ import annotations

import atexit
import os
import queue
import random
import threading
import weakref
from collections.abc import Iterable, Iterator, Sequence
from typing import IO, Any, Unpack

from . import _native
from ._native import Stat
from .file import open_file
from .options import VolumeOptions

#: How long closing a volume may take, in seconds.
CLOSE_PATIENCE_S = 60.0

#: Files of one request for content while files are read ahead.
BATCH_FILES = 64

_open_volumes: weakref.WeakSet[Volume] = weakref.WeakSet()


class Volume:
    """An open volume. Paths are relative to its root; threads and forked processes may share one.

    A bucket or directory named by path can be open in any number of processes. A volume whose names are on this
    machine alone (named by inode without a database, or on a drive) can be open in one process: while it is mounted,
    opening it fails with ``OSError(EBUSY)``, whose message says what to do.

    :class:`tenon.VolumeOptions` describes the options, among them the limits of the caches: ``memory_limit``,
    ``metadata_ttl``, ``cache_dir`` and ``cache_size``.
    """

    def __init__(self, url: str, **options: Unpack[VolumeOptions]) -> None:
        self._given_url = url
        self._options: dict[str, Any] = dict(options)
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._native = _native.Volume(url, self._options)
        _open_volumes.add(self)

    @property
    def native(self) -> _native.Volume:
        """The native volume of this process. The first use after a fork opens the volume again."""
        if self._pid != os.getpid():
            with self._lock:
                if self._pid != os.getpid():
                    self._native = _native.Volume(self._given_url, self._options)
                    self._pid = os.getpid()
                    _open_volumes.add(self)
        return self._native

    @property
    def url(self) -> str:
        """The URL of the volume, without secrets."""
        return self._native.url

    @property
    def closed(self) -> bool:
        """Whether the volume is closed."""
        return self._native.closed

    def __repr__(self) -> str:
        return f"Volume({self.url!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopen, (self._given_url, self._options)

    def __enter__(self) -> Volume:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self, patience: float = CLOSE_PATIENCE_S) -> None:
        """Stores pending changes, for at most ``patience`` seconds, and closes the volume. The end of the program closes all volumes."""
        self._native.close(patience)

    def sync(self) -> None:
        """Makes all changes so far durable."""
        self.native.sync()

    def refresh(self) -> None:
        """Forgets cached names and attributes, which otherwise are valid for ``metadata_ttl``."""
        self.native.forget_learned()

    def cache_usage(self) -> dict[str, int]:
        """Returns the use of the caches, in bytes: ``memory_bytes`` of data and ``metadata_bytes``, with the
        ``memory_limit_bytes`` for both. With ``cache_dir`` also ``disk_bytes`` and ``disk_limit_bytes`` of the directory, and
        ``disk_hit_bytes`` and ``disk_stored_bytes``: what this volume has read from it and stored there since it was opened.
        """
        return self.native.cache_usage()

    # Files.

    def open(
        self,
        path: str,
        mode: str = "r",
        buffering: int = -1,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
    ) -> IO[Any]:
        """Opens a file like Python's ``open``. Creates missing directories above a new file."""
        return open_file(self, path, mode, buffering, encoding, errors, newline)

    def read(self, path: str, start: int = 0, end: int | None = None) -> bytes:
        """Returns the content of a file, or the bytes of a slice."""
        return self.native.read_file(path, start, end)

    def read_many(self, paths: Sequence[str]) -> list[bytes | OSError]:
        """Returns the content of each file, or its exception. The requests are in flight together."""
        return self.native.read_files(list(paths))

    def read_ranges(self, ranges: Sequence[tuple[str, int, int | None]]) -> list[bytes | OSError]:
        """Returns the bytes of each range (path, start, end), or its exception."""
        return self.native.read_ranges(list(ranges))

    def write(self, path: str, content: bytes, exclusive: bool = False) -> None:
        """Replaces or creates a file. Readers see the old or the new content."""
        self.native.write_file(path, content, exclusive)

    def write_many(self, files: Iterable[tuple[str, bytes]]) -> list[OSError | None]:
        """Replaces or creates files. Returns ``None`` or the exception of each."""
        return self.native.write_files(list(files))

    def read_ahead(
        self, paths: Iterable[str], *, seed: int | None = None, ahead: int = 2
    ) -> Iterator[tuple[str, bytes]]:
        """Yields each path with its content, and reads the next files meanwhile.

        With a ``seed``, the order is shuffled. ``ahead`` is the number of batches of 64 files that are read ahead. Nothing
        is looked up: each file costs one request, so that no index of the files is needed. With ``cache_dir``, a file whose
        attributes are not known is looked up, and content of more than 128 KiB comes from the cache if it is there.
        """
        order = list(paths)
        if seed is not None:
            random.Random(seed).shuffle(order)
        batches = [order[at : at + BATCH_FILES] for at in range(0, len(order), BATCH_FILES)]
        waiting: list[queue.SimpleQueue[Any]] = []

        def start(batch: list[str]) -> None:
            answer: queue.SimpleQueue[Any] = queue.SimpleQueue()
            waiting.append(answer)
            self.native.read_files(batch, done=lambda value, error: answer.put((value, error)))

        for batch in batches[:ahead]:
            start(batch)
        for number, batch in enumerate(batches):
            if number + ahead < len(batches):
                start(batches[number + ahead])
            contents, error = waiting.pop(0).get()
            if error is not None:
                raise error
            for path, content in zip(batch, contents, strict=True):
                if isinstance(content, OSError):
                    raise content
                yield path, content

    def get_many(self, files: Iterable[tuple[str, str]]) -> list[OSError | None]:
        """Copies files (path, local path) to the local disk. Returns ``None`` or the exception of each."""
        return self.native.get_files(list(files))

    def put_many(self, files: Iterable[tuple[str, str]]) -> list[OSError | None]:
        """Copies local files (local path, path) into the volume. Returns ``None`` or the exception of each."""
        return self.native.put_files(list(files))

    def copy(self, source: str, target: str) -> None:
        """Copies a file inside the store, with its metadata."""
        _raise_first(self.native.copy_files([(source, target)]))

    # Names.

    def stat(self, path: str, follow: bool = True) -> Stat:
        """Returns the attributes of a file."""
        return self.native.stat(path, follow)

    def exists(self, path: str) -> bool:
        """Returns whether there is a file or directory."""
        try:
            self.native.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def listdir(self, path: str = "") -> list[str]:
        """Returns the names in a directory."""
        return [name for name, _ in self.native.list(path)]

    def scandir(self, path: str = "") -> list[tuple[str, Stat]]:
        """Returns the names in a directory with their attributes."""
        return self.native.list(path)

    def walk(self, path: str = "", depth_max: int | None = None) -> list[tuple[str, Stat]]:
        """Returns all paths below a directory, relative to it, with their attributes."""
        return self.native.walk(path, depth_max)

    def mkdir(self, path: str, mode: int = 0o777) -> None:
        """Makes a directory."""
        self.native.mkdir(path, mode, False)

    def makedirs(self, path: str, mode: int = 0o777) -> None:
        """Makes a directory and those above it that are missing."""
        self.native.mkdir(path, mode, True)

    def remove(self, path: str) -> None:
        """Removes a file."""
        self.native.unlink(path)

    def remove_many(self, paths: Sequence[str]) -> list[OSError | None]:
        """Removes files. Returns ``None`` or the exception of each."""
        return self.native.unlink_many(list(paths))

    def rmdir(self, path: str) -> None:
        """Removes an empty directory."""
        self.native.rmdir(path)

    def rmtree(self, path: str) -> None:
        """Removes a directory and everything below it."""
        self.native.rmtree(path)

    def rename(self, source: str, target: str) -> None:
        """Renames a file or directory; replaces a file of the new name."""
        self.native.rename(source, target)

    def symlink(self, target: str, path: str) -> None:
        """Makes a symbolic link."""
        self.native.symlink(target, path)

    def readlink(self, path: str) -> str:
        """Returns the target of a symbolic link."""
        return self.native.readlink(path)

    def link(self, source: str, target: str) -> None:
        """Makes another name of a file (a hard link)."""
        self.native.link(source, target)

    # Attributes.

    def chmod(self, path: str, mode: int) -> None:
        """Sets the permission bits."""
        self.native.setattr(path, mode=mode)

    def chown(self, path: str, uid: int, gid: int) -> None:
        """Sets owner and group."""
        self.native.setattr(path, uid=uid, gid=gid)

    def truncate(self, path: str, size: int) -> None:
        """Sets the length of a file."""
        self.native.setattr(path, size=size)

    def utime(self, path: str, atime_ns: int, mtime_ns: int) -> None:
        """Sets the times, in nanoseconds since 1970."""
        self.native.setattr(path, atime_ns=atime_ns, mtime_ns=mtime_ns)

    def getxattr(self, path: str, name: str) -> bytes:
        """Returns an extended attribute, such as ``user.NAME``: the metadata of an object."""
        return self.native.getxattr(path, name)

    def setxattr(self, path: str, name: str, value: bytes) -> None:
        """Sets an extended attribute."""
        self.native.setxattr(path, name, value)

    def listxattr(self, path: str) -> list[str]:
        """Returns the names of the extended attributes."""
        return self.native.listxattr(path)

    def removexattr(self, path: str, name: str) -> None:
        """Removes an extended attribute."""
        self.native.setxattr(path, name, None)


def _raise_first(outcomes: Sequence[Any]) -> None:
    for outcome in outcomes:
        if isinstance(outcome, OSError):
            raise outcome


def _reopen(url: str, options: dict[str, Any]) -> Volume:
    return Volume(url, **options)


@atexit.register
def _close_all() -> None:
    for volume in list(_open_volumes):
        volume.close()
    if _open_volumes:
        _native.Volume.wait_until_closed()
