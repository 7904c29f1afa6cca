"""Files of Tenon volumes, without a mount.

A volume is a bucket (``s3://bucket``), a local directory (``file:///dir``), an object drive (``drive:///device``) or a
directory made by ``tenon format``. :class:`Volume` has the operations of POSIX, and many at a time in one call.
``tenon.fsspec`` makes volumes a file system of fsspec, so that pandas, pyarrow, dask, zarr and DuckDB open
``tenon://bucket/path``.
"""

from importlib.metadata import PackageNotFoundError, version

from ._native import Stat
from .file import RawFile
from .options import VolumeOptions
from .volume import Volume

try:
    __version__ = version("tenon-fs")
except PackageNotFoundError:  # The package is used from its source directory.
    __version__ = "0"

__all__ = ["RawFile", "Stat", "Volume", "VolumeOptions", "__version__"]
