"""Tenon volumes as a file system of fsspec: ``tenon://bucket/path``.

The file system is asynchronous, as ``fsspec.asyn`` defines it; its synchronous methods for single files call the volume
directly and not through the event loop. A bulk operation (``cat``, ``cat_ranges``, ``pipe``, ``rm``) is one call into the
library, which sends its requests concurrently; ``get`` and ``put`` make one call for every 1,024 files.
"""

from __future__ import annotations

import asyncio
import datetime
import errno
import os
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from functools import partial
from typing import IO, Any

from fsspec.asyn import AsyncFileSystem, get_loop
from fsspec.callbacks import DEFAULT_CALLBACK

from ._native import Stat
from .options import VolumeOptions
from .volume import Volume

#: Options of the file system itself; all others are passed to the volumes.
_OWN_OPTIONS = (
    "asynchronous", "loop", "batch_size", "skip_instance_cache", "use_listings_cache", "listings_expiry_time", "max_paths"
)

#: Names by which ``s3fs`` and ``boto3`` call options of a volume.
_OTHER_NAMES = {
    "aws_access_key_id": "key",
    "aws_secret_access_key": "secret",
    "aws_session_token": "token",
    "region_name": "region",
}

Info = dict[str, Any]

#: Files of one call of ``get`` or ``put`` into the library.
_FILES_PER_CALL = 1024

#: Pairs of source and target that ``get`` and ``put`` collect; ``None`` outside of them.
_collected: ContextVar[list[tuple[str, Any]] | None] = ContextVar("_collected", default=None)

_shared_volumes: weakref.WeakValueDictionary[tuple[str, str], Volume] = weakref.WeakValueDictionary()
_opening = threading.Lock()


class TenonFileSystem(AsyncFileSystem):
    """Files of Tenon volumes.

    Without ``volume``, the first part of a path is a bucket: ``tenon://bucket/path``. With ``volume``, a URL or the directory
    of a volume, paths are relative to its root: ``fsspec.filesystem("tenon", volume="s3://bucket/prefix")``. All other
    options are those of :class:`tenon.Volume`, also under their names in boto3, and in ``client_kwargs`` as with s3fs.

    The caches are those of the volumes: ``memory_limit`` bytes in memory for each bucket, names and attributes for
    ``metadata_ttl`` seconds, and ``cache_size`` bytes in ``cache_dir`` on the local disk for all buckets together. fsspec's own cache of listings
    is not used.
    """

    protocol = "tenon"
    root_marker = ""
    mirror_sync_methods = True

    def __init__(
        self,
        volume: str | None = None,
        *,
        memory_limit: int | None = None,
        metadata_ttl: float | None = None,
        cache_dir: str | os.PathLike[str] | None = None,
        cache_size: int | None = None,
        shared_cache: str | None = None,
        shared_cache_profile: str | None = None,
        **options: Any,
    ) -> None:
        caches: VolumeOptions = {
            "memory_limit": memory_limit,
            "metadata_ttl": metadata_ttl,
            "cache_dir": None if cache_dir is None else os.fspath(cache_dir),
            "cache_size": cache_size,
            "shared_cache": shared_cache,
            "shared_cache_profile": shared_cache_profile,
        }
        own = {name: options[name] for name in _OWN_OPTIONS if name in options}
        super().__init__(**own)
        given = {name: value for name, value in options.items() if name not in _OWN_OPTIONS}
        given.update(given.pop("client_kwargs", None) or {})
        given.update({name: value for name, value in caches.items() if value is not None})
        self._volume_url = volume
        self._volume_options = {_OTHER_NAMES.get(name, name): value for name, value in given.items()}
        self._volumes: dict[str, Volume] = {}

    @property
    def fsid(self) -> str:
        return f"tenon_{self._volume_url or ''}_{self._volume_options.get('endpoint_url') or ''}"

    @property
    def loop(self) -> Any:
        """The event loop of this process; a forked process gets another."""
        if self._pid != os.getpid():
            self._pid = os.getpid()
            self._loop = None if self.asynchronous else get_loop()
        return self._loop

    # Volumes and paths.

    def volume_of(self, path: str) -> tuple[Volume, str]:
        """Returns the volume of a path, and the path inside it."""
        path = self._strip_protocol(path)
        if self._volume_url is not None:
            return self._open_volume(self._volume_url), path
        bucket, _, inside = path.partition("/")
        if not bucket:
            raise OSError(errno.EINVAL, "the path has no bucket: write tenon://bucket/path, or give `volume`", path)
        return self._open_volume(f"s3://{bucket}"), inside

    def _open_volume(self, url: str) -> Volume:
        volume = self._volumes.get(url)
        if volume is None or volume.closed:
            # fsspec makes an instance for each thread. The instances share volumes, so that each sees the changes of the others at once.
            key = (url, repr(sorted(self._volume_options.items())))
            with _opening:
                volume = _shared_volumes.get(key)
                if volume is None or volume.closed:
                    volume = _shared_volumes[key] = Volume(url, **self._volume_options)
            self._volumes[url] = volume
        return volume

    def _group(self, paths: Iterable[str]) -> Iterator[tuple[Volume, list[int], list[str]]]:
        """Yields each volume with the positions of its paths, and the paths inside it."""
        groups: dict[str, tuple[Volume, list[int], list[str]]] = {}
        for position, path in enumerate(paths):
            volume, inside = self.volume_of(path)
            _, positions, insides = groups.setdefault(volume.url, (volume, [], []))
            positions.append(position)
            insides.append(inside)
        yield from groups.values()

    def close(self) -> None:
        """Stores pending changes and closes the volumes. Other instances with the same options open them again at the next use."""
        volumes, self._volumes = self._volumes, {}
        for volume in volumes.values():
            volume.close()

    def invalidate_cache(self, path: str | None = None) -> None:
        for volume in self._volumes.values():
            volume.refresh()
        super().invalidate_cache(path)

    # Attributes and listings.

    def info(self, path: str, **_: Any) -> Info:
        volume, inside = self.volume_of(path)
        return _info(self._strip_protocol(path), volume.native.stat(inside))

    async def _info(self, path: str, **_: Any) -> Info:
        volume, inside = self.volume_of(path)
        return _info(self._strip_protocol(path), await _call(volume.native.stat, inside))

    def exists(self, path: str, **_: Any) -> bool:
        try:
            self.info(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    async def _exists(self, path: str, **_: Any) -> bool:
        try:
            await self._info(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def isdir(self, path: str) -> bool:
        try:
            return bool(self.info(path)["type"] == "directory")
        except OSError:
            return False

    def isfile(self, path: str) -> bool:
        try:
            return bool(self.info(path)["type"] == "file")
        except OSError:
            return False

    async def _ls(self, path: str, detail: bool = True, **_: Any) -> list[Any]:
        path = self._strip_protocol(path)
        volume, inside = self.volume_of(path)
        try:
            entries = await _call(volume.native.list, inside)
        except NotADirectoryError:
            info = await self._info(path)
            return [info] if detail else [info["name"]]
        prefix = f"{path}/" if path else ""
        if not detail:
            return sorted(prefix + name for name, _ in entries)
        return [_info(prefix + name, stat) for name, stat in entries]

    async def _find(
        self, path: str, maxdepth: int | None = None, withdirs: bool = False, detail: bool = False, **_: Any
    ) -> Any:
        path = self._strip_protocol(path)
        volume, inside = self.volume_of(path)
        found: dict[str, Info] = {}
        try:
            top = await self._info(path)
            if top["type"] != "directory":
                found[path] = top
            else:
                if withdirs and path:
                    found[path] = top
                prefix = f"{path}/" if path else ""
                for name, stat in await _call(volume.native.walk, inside, maxdepth):
                    if withdirs or stat.kind != "directory":
                        found[prefix + name] = _info(prefix + name, stat)
        except (FileNotFoundError, NotADirectoryError):
            pass
        names = sorted(found)
        return {name: found[name] for name in names} if detail else names

    def created(self, path: str) -> datetime.datetime:
        return self.info(path)["created"]  # type: ignore[no-any-return]

    def modified(self, path: str) -> datetime.datetime:
        return self.info(path)["LastModified"]  # type: ignore[no-any-return]

    def ukey(self, path: str) -> str:
        info = self.info(path)
        return f"{info['ino']}-{info['size']}-{info['mtime']}"

    # Content.

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **_: Any) -> bytes:
        volume, inside = self.volume_of(path)
        return volume.native.read_file(inside, start or 0, end)

    async def _cat_file(self, path: str, start: int | None = None, end: int | None = None, **_: Any) -> bytes:
        volume, inside = self.volume_of(path)
        return await _call(volume.native.read_file, inside, start or 0, end)  # type: ignore[no-any-return]

    async def _cat(self, path: Any, recursive: bool = False, on_error: str = "raise", **_: Any) -> Any:
        paths = await self._expand_path(path, recursive=recursive)
        if recursive:
            paths = [path for path in paths if not await self._isdir(path)]
        contents: list[Any] = [None] * len(paths)
        for volume, positions, insides in self._group(paths):
            for position, content in zip(positions, await _call(volume.native.read_files, insides), strict=True):
                contents[position] = content
        if on_error == "raise":
            _raise_first(contents)
        if len(paths) > 1 or isinstance(path, list) or paths[0] != self._strip_protocol(path):
            pairs = zip(paths, contents, strict=True)
            return {path: found for path, found in pairs if on_error != "omit" or not isinstance(found, Exception)}
        return contents[0]

    async def _cat_ranges(
        self,
        paths: list[str],
        starts: Any,
        ends: Any,
        max_gap: int | None = None,
        on_error: str = "return",
        **_: Any,
    ) -> list[Any]:
        if not isinstance(paths, list):
            raise TypeError("paths is a list")
        starts = starts if isinstance(starts, Iterable) else [starts] * len(paths)
        ends = ends if isinstance(ends, Iterable) else [ends] * len(paths)
        limits = list(zip(starts, ends, strict=True))
        if len(limits) != len(paths):
            raise ValueError("paths, starts and ends have different lengths")
        contents: list[Any] = [None] * len(paths)
        for volume, positions, insides in self._group(paths):
            ranges = [
                (inside, limits[position][0] or 0, limits[position][1])
                for position, inside in zip(positions, insides, strict=True)
            ]
            for position, content in zip(positions, await _call(volume.native.read_ranges, ranges), strict=True):
                contents[position] = content
        if on_error != "return":
            _raise_first(contents)
        return contents

    def pipe_file(self, path: str, value: Any, mode: str = "overwrite", **_: Any) -> None:
        volume, inside = self.volume_of(path)
        volume.native.write_file(inside, _as_bytes(value), mode == "create")

    async def _pipe_file(self, path: str, value: Any, mode: str = "overwrite", **_: Any) -> None:
        volume, inside = self.volume_of(path)
        await _call(volume.native.write_file, inside, _as_bytes(value), mode == "create")

    async def _pipe(self, path: Any, value: Any = None, mode: str = "overwrite", **_: Any) -> None:
        files = {path: value} if isinstance(path, str) else path
        values = list(files.values())
        for volume, positions, insides in self._group(files):
            content = [
                (inside, _as_bytes(values[position])) for position, inside in zip(positions, insides, strict=True)
            ]
            _raise_first(await _call(volume.native.write_files, content, mode == "create"))

    async def _get(self, rpath: Any, lpath: Any, *arguments: Any, callback: Any = DEFAULT_CALLBACK, **options: Any) -> None:
        pairs = await _collect(super()._get, rpath, lpath, *arguments, **options)
        callback.set_size(len(pairs))
        for batch in _batches(pairs):
            for volume, positions, insides in self._group([remote for remote, _ in batch]):
                files = [
                    (inside, os.fspath(batch[position][1])) for position, inside in zip(positions, insides, strict=True)
                ]
                outcomes = await _call(volume.native.get_files, files)
                for position, outcome in zip(positions, outcomes, strict=True):
                    if isinstance(outcome, IsADirectoryError) and await self._isdir(batch[position][0]):
                        os.makedirs(batch[position][1], exist_ok=True)
                    else:
                        _raise_first([outcome])
            callback.relative_update(len(batch))

    async def _put(self, lpath: Any, rpath: Any, *arguments: Any, callback: Any = DEFAULT_CALLBACK, **options: Any) -> None:
        if options.get("mode", "overwrite") != "overwrite":
            # fsspec calls `_put_file` for each file, which looks the name up first.
            await super()._put(lpath, rpath, *arguments, callback=callback, **options)
            return
        pairs = await _collect(super()._put, lpath, rpath, *arguments, **options)
        callback.set_size(len(pairs))
        for batch in _batches(pairs):
            for volume, positions, insides in self._group([remote for _, remote in batch]):
                files = [(batch[position][0], inside) for position, inside in zip(positions, insides, strict=True)]
                _raise_first(await _call(volume.native.put_files, files))
            callback.relative_update(len(batch))

    async def _put_file(
        self, lpath: str, rpath: str, callback: Any = DEFAULT_CALLBACK, mode: str = "overwrite", **_: Any
    ) -> None:
        if (collected := _collected.get()) is not None:
            collected.append((lpath, rpath))
            return
        volume, inside = self.volume_of(rpath)
        if os.path.isdir(lpath):
            await _call(volume.native.mkdir, inside, 0o777, True)
            return
        if mode == "create" and await self._exists(rpath):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), rpath)
        size = os.path.getsize(lpath)
        callback.set_size(size)
        _raise_first(await _call(volume.native.put_files, [(lpath, inside)]))
        callback.relative_update(size)

    async def _get_file(self, rpath: str, lpath: Any, callback: Any = DEFAULT_CALLBACK, **_: Any) -> None:
        collected = _collected.get()
        if collected is not None and not hasattr(lpath, "write"):
            collected.append((rpath, lpath))
            return
        volume, inside = self.volume_of(rpath)
        if hasattr(lpath, "write"):
            lpath.write(await self._cat_file(rpath))
            return
        try:
            _raise_first(await _call(volume.native.get_files, [(inside, os.fspath(lpath))]))
        except IsADirectoryError:
            if not await self._isdir(rpath):
                raise
            os.makedirs(lpath, exist_ok=True)
            return
        size = os.path.getsize(lpath)
        callback.set_size(size)
        callback.relative_update(size)

    def _open(
        self,
        path: str,
        mode: str = "rb",
        block_size: int | None = None,
        autocommit: bool = True,
        cache_options: dict[str, Any] | None = None,
        **_: Any,
    ) -> IO[Any]:
        volume, inside = self.volume_of(path)
        if not autocommit:
            raise NotImplementedError("transactions are not supported: a file gets its name when it is closed")
        return volume.open(inside, mode, buffering=block_size if block_size else -1)

    def touch(self, path: str, truncate: bool = True, **_: Any) -> None:
        if truncate or not self.exists(path):
            self.pipe_file(path, b"")
        else:
            now = int(datetime.datetime.now(datetime.timezone.utc).timestamp() * 1e9)
            volume, inside = self.volume_of(path)
            volume.utime(inside, now, now)

    # Names.

    async def _mkdir(self, path: str, create_parents: bool = True, **_: Any) -> None:
        volume, inside = self.volume_of(path)
        if await self._exists(path):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        await _call(volume.native.mkdir, inside, 0o777, create_parents)

    async def _makedirs(self, path: str, exist_ok: bool = False) -> None:
        if not exist_ok and await self._exists(path):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        volume, inside = self.volume_of(path)
        await _call(volume.native.mkdir, inside, 0o777, True)

    async def _rmdir(self, path: str) -> None:
        volume, inside = self.volume_of(path)
        await _call(volume.native.rmdir, inside)

    def rmdir(self, path: str) -> None:
        volume, inside = self.volume_of(path)
        volume.native.rmdir(inside)

    async def _rm_file(self, path: str, **_: Any) -> None:
        volume, inside = self.volume_of(path)
        await _call(volume.native.unlink, inside)

    async def _rm(self, path: Any, recursive: bool = False, maxdepth: int | None = None, **_: Any) -> None:
        if maxdepth is not None:
            paths = await self._expand_path(path, recursive=recursive, maxdepth=maxdepth)
        else:
            paths = await self._expand_path(path)
        directories = [path for path in paths if recursive and await self._isdir(path)] if recursive else []
        if maxdepth is None:
            for directory in directories:
                volume, inside = self.volume_of(directory)
                await _call(volume.native.rmtree, inside)
        within = set(directories)
        for volume, _positions, insides in self._group(path for path in paths if path not in within):
            outcomes = await _call(volume.native.unlink_many, insides)
            for inside, outcome in zip(insides, outcomes, strict=True):
                if isinstance(outcome, IsADirectoryError | PermissionError) and not recursive:
                    await _call(volume.native.rmdir, inside)
                else:
                    _raise_first([outcome])
        if maxdepth is not None:
            for directory in reversed(directories):
                volume, inside = self.volume_of(directory)
                await _call(volume.native.rmdir, inside)

    async def _cp_file(self, path1: str, path2: str, **_: Any) -> None:
        (source_volume, source), (target_volume, target) = self.volume_of(path1), self.volume_of(path2)
        if await self._isdir(path1):
            await _call(target_volume.native.mkdir, target, 0o777, True)
        elif source_volume is target_volume:
            _raise_first(await _call(source_volume.native.copy_files, [(source, target)]))
        else:
            await self._pipe_file(path2, await self._cat_file(path1))

    async def _mv_file(self, path1: str, path2: str) -> None:
        (source_volume, source), (target_volume, target) = self.volume_of(path1), self.volume_of(path2)
        if source_volume is not target_volume:
            await super()._mv_file(path1, path2)
            return
        await _call(source_volume.native.rename, source, target)

    def mv(self, path1: str, path2: str, recursive: bool = False, maxdepth: int | None = None, **options: Any) -> None:
        """Renames a file or directory: one step, whatever is in it. ``recursive`` is not needed."""
        if isinstance(path1, list) or "*" in path1 or maxdepth is not None:
            super().mv(path1, path2, recursive=recursive, maxdepth=maxdepth, **options)
            return
        if path2.endswith("/") or self.isdir(path2):
            path2 = f"{path2.rstrip('/')}/{self._strip_protocol(path1).rsplit('/', 1)[-1]}"
        (source_volume, source), (target_volume, target) = self.volume_of(path1), self.volume_of(path2)
        if source_volume is not target_volume:
            super().mv(path1, path2, recursive=recursive, **options)
            return
        source_volume.rename(source, target)

    # Extended attributes: the metadata of objects.

    def getxattr(self, path: str, name: str) -> bytes:
        """Returns an extended attribute, such as ``user.NAME``."""
        volume, inside = self.volume_of(path)
        return volume.getxattr(inside, name)

    def setxattr(self, path: str, name: str, value: bytes) -> None:
        """Sets an extended attribute."""
        volume, inside = self.volume_of(path)
        volume.setxattr(inside, name, value)

    def listxattr(self, path: str) -> list[str]:
        """Returns the names of the extended attributes."""
        volume, inside = self.volume_of(path)
        return volume.listxattr(inside)


def _info(path: str, stat: Stat) -> Info:
    return {
        "name": path,
        "size": 0 if stat.kind == "directory" else stat.size,
        "type": stat.kind,
        "mode": stat.mode,
        "uid": stat.uid,
        "gid": stat.gid,
        "ino": stat.ino,
        "nlink": stat.nlink,
        "mtime": stat.mtime_ns / 1e9,
        "LastModified": _time(stat.mtime_ns),
        "created": _time(stat.birthtime_ns),
    }


def _time(ns: int) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(ns / 1e9, datetime.timezone.utc)


def _as_bytes(value: Any) -> bytes:
    return value if isinstance(value, bytes) else bytes(value)


def _raise_first(outcomes: Iterable[Any]) -> None:
    for outcome in outcomes:
        if isinstance(outcome, Exception):
            raise outcome


async def _collect(method: Callable[..., Any], *arguments: Any, **options: Any) -> list[tuple[str, Any]]:
    """Returns the pairs of paths for which fsspec's ``_get`` or ``_put`` copies a file each, in their order."""
    pairs: list[tuple[str, Any]] = []
    token = _collected.set(pairs)
    try:
        await method(*arguments, **options)
    finally:
        _collected.reset(token)
    return pairs


def _batches(pairs: list[tuple[str, Any]]) -> Iterator[list[tuple[str, Any]]]:
    """Yields the pairs of each call into the library."""
    for start in range(0, len(pairs), _FILES_PER_CALL):
        yield pairs[start : start + _FILES_PER_CALL]


def _call(method: Callable[..., Any], *arguments: Any) -> asyncio.Future[Any]:
    """Starts a call of the library. The future gets its result in the running event loop."""
    loop = asyncio.get_running_loop()
    future = loop.create_future()
    method(*arguments, done=partial(_finish_in, loop, future))
    return future


def _finish_in(loop: asyncio.AbstractEventLoop, future: asyncio.Future[Any], value: Any, error: Any) -> None:
    try:
        loop.call_soon_threadsafe(_finish, future, value, error)
    except RuntimeError:
        pass  # The loop is closed, so nothing waits for the future any more.


def _finish(future: asyncio.Future[Any], value: Any, error: Any) -> None:
    if future.cancelled():
        return
    if error is None:
        future.set_result(value)
    else:
        future.set_exception(error)
