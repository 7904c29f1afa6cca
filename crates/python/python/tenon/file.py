"""File objects of Python's ``io`` over the open files of a volume."""

from __future__ import annotations

import io
import os
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .volume import Volume

#: Bytes that a buffered reader requests at a time, and that a buffered writer collects.
BUFFER_BYTES = 1 << 20


class RawFile(io.RawIOBase):
    """An open file with a position, unbuffered. It is stored and gets its name at ``close`` or ``flush``."""

    def __init__(self, volume: Volume, path: str, mode: str = "rb") -> None:
        super().__init__()
        kind, self._is_updated = _parse(mode)
        self._is_readable = kind == "r" or self._is_updated
        self._is_writable = kind != "r" or self._is_updated
        self._is_appending = kind == "a"
        self.name = path
        self.mode = mode
        self._position = 0
        self._file = volume.native.open_file(path, _flags(kind, self._is_updated))
        if self._is_appending:
            self._position = self._file.size()

    @property
    def size(self) -> int:
        """Length of the file in bytes."""
        return self._file.size()

    def readable(self) -> bool:
        return self._is_readable

    def writable(self) -> bool:
        return self._is_writable

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        self._check_open()
        return self._position

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._check_open()
        if whence == os.SEEK_CUR:
            offset += self._position
        elif whence == os.SEEK_END:
            offset += self._file.size()
        elif whence != os.SEEK_SET:
            raise ValueError(f"whence {whence} is not supported")
        if offset < 0:
            raise ValueError("the position is before the beginning of the file")
        self._position = offset
        return offset

    def readinto(self, buffer: Any) -> int:
        self._check_open()
        if not self._is_readable:
            raise io.UnsupportedOperation("the file is not open for reading")
        count = self._file.readinto(self._position, buffer)
        self._position += count
        return count

    def read(self, size: int | None = -1) -> bytes:
        """Reads up to ``size`` bytes; fewer only at the end of the file."""
        self._check_open()
        if not self._is_readable:
            raise io.UnsupportedOperation("the file is not open for reading")
        if size is None or size < 0:
            return self.readall()
        content = self._file.read(self._position, size)
        self._position += len(content)
        return content

    def readall(self) -> bytes:
        self._check_open()
        if not self._is_readable:
            raise io.UnsupportedOperation("the file is not open for reading")
        content = self._file.read(self._position, max(0, self._file.current_size() - self._position))
        self._position += len(content)
        return content

    def write(self, data: Any) -> int:
        self._check_open()
        if not self._is_writable:
            raise io.UnsupportedOperation("the file is not open for writing")
        if self._is_appending:
            count = self._file.write(None, data)
            self._position = self._file.size()
            return count
        count = self._file.write(self._position, data)
        self._position += count
        return count

    def truncate(self, size: int | None = None) -> int:
        self._check_open()
        size = self._position if size is None else size
        self._file.truncate(size)
        return size

    def flush(self) -> None:
        """Stores what was written: other clients see it when this returns."""
        self._check_open()
        if self._is_writable:
            self._file.flush()

    def close(self) -> None:
        if self.closed:
            return
        try:
            if self._is_writable:
                self._file.flush()
        finally:
            # The base class calls flush, which must not fail for a file that is being closed.
            self._is_writable = False
            super().close()
            self._file.close()

    def _check_open(self) -> None:
        if self.closed:
            raise ValueError("the file is closed")


def open_file(
    volume: Volume,
    path: str,
    mode: str = "rb",
    buffering: int = -1,
    encoding: str | None = None,
    errors: str | None = None,
    newline: str | None = None,
) -> IO[Any]:
    """Opens a file like Python's ``open``: buffered, and as text unless the mode has a ``b``."""
    is_text = "b" not in mode
    raw = RawFile(volume, path, mode.replace("t", "") + ("b" if is_text else ""))
    if buffering == 0:
        if is_text:
            raw.close()
            raise ValueError("text files are buffered")
        return raw  # type: ignore[return-value]
    size = BUFFER_BYTES if buffering < 2 else buffering
    buffered: IO[bytes]
    if raw.readable() and raw.writable():
        buffered = io.BufferedRandom(raw, size)
    elif raw.writable():
        buffered = io.BufferedWriter(raw, size)
    else:
        buffered = io.BufferedReader(raw, size)
    if not is_text:
        return buffered
    return io.TextIOWrapper(buffered, encoding, errors, newline)  # type: ignore[arg-type]


def _parse(mode: str) -> tuple[str, bool]:
    kind = mode.replace("b", "").replace("+", "")
    if kind not in ("r", "w", "a", "x") or mode.count("+") > 1:
        raise ValueError(f"invalid mode: {mode!r}")
    return kind, "+" in mode


def _flags(kind: str, is_updated: bool) -> int:
    access = os.O_RDWR if is_updated else (os.O_RDONLY if kind == "r" else os.O_WRONLY)
    creation = {
        "r": 0,
        "w": os.O_CREAT | os.O_TRUNC,
        "a": os.O_CREAT | os.O_APPEND,
        "x": os.O_CREAT | os.O_EXCL,
    }
    return access | creation[kind]
