"""The settings of the caches, of volumes and of the fsspec file system."""

import os
import subprocess
import sys
import time
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import pyarrow.fs
import pytest
import tenon
from tenon.fsspec import TenonFileSystem

MIB = 1 << 20


def _settle(volume: tenon.Volume, is_done: Callable[[dict[str, int]], bool]) -> None:
    """Waits until what was read is stored, which happens in the background."""
    for _ in range(500):
        if is_done(volume.cache_usage()):
            return
        time.sleep(0.02)
    raise AssertionError(volume.cache_usage())


def test_content_is_read_from_disk_by_the_next_volume(
    bucket: str, options: dict[str, Any], tmp_path: Path
) -> None:
    url = f"s3://{bucket}/disk"
    cached = {**options, "cache_dir": tmp_path / "cache", "cache_size": 256 * MIB}
    # Smaller files come with the request that looks them up.
    small = {f"dir/{number}": os.urandom(300_000) for number in range(20)}
    large = os.urandom(9 * MIB)
    total = len(large) + sum(map(len, small.values()))
    with tenon.Volume(url, **options) as writer:
        assert set(writer.write_many(small.items())) == {None}
        writer.write("large", large)
        assert "disk_bytes" not in writer.cache_usage()
    with tenon.Volume(url, **cached) as first:
        # Content that is read while much is being stored is not stored, so the small files wait.
        assert first.read("large") == large
        _settle(first, lambda usage: usage["disk_stored_bytes"] >= len(large))
        assert first.read_many(list(small)) == list(small.values())
        _settle(first, lambda usage: usage["disk_stored_bytes"] >= total)
        assert first.cache_usage()["disk_limit_bytes"] == 256 * MIB
    for read in (
        lambda volume: (volume.read("large"), volume.read_many(list(small))),
        lambda volume: (
            volume.read_ranges([("large", 0, None)])[0],
            [content for _, content in volume.read_ahead(list(small))],
        ),
        lambda volume: (volume.open("large", "rb").read(), [volume.open(name, "rb").read() for name in small]),
    ):
        with tenon.Volume(url, **cached) as again:
            assert read(again) == (large, list(small.values()))
            assert again.cache_usage()["disk_hit_bytes"] >= total, again.cache_usage()
    with tenon.Volume(url, **cached) as last:
        assert last.get_many([("large", str(tmp_path / "copy"))]) == [None]
        assert (tmp_path / "copy").read_bytes() == large
        assert last.cache_usage()["disk_hit_bytes"] >= len(large)


def test_replaced_content_is_never_read_from_the_cache(
    bucket: str, options: dict[str, Any], other_client: pyarrow.fs.S3FileSystem, tmp_path: Path
) -> None:
    cached = {**options, "cache_dir": str(tmp_path / "cache"), "metadata_ttl": 0}
    with tenon.Volume(f"s3://{bucket}/replaced", **cached) as volume:
        for turn in range(3):
            content = b"%d" % turn * 100_000
            with other_client.open_output_stream(f"{bucket}/replaced/file") as file:
                file.write(content)
            assert volume.read("file") == content
            assert volume.read_many(["file"]) == [content]


def test_the_file_system_of_fsspec_shares_the_cache(bucket: str, options: dict[str, Any], tmp_path: Path) -> None:
    content = os.urandom(3 * MIB)
    path = f"{bucket}/fsspec/file"
    cached = {"cache_dir": str(tmp_path / "cache"), "cache_size": 300 * MIB, "memory_limit": 64 * MIB}
    fs = TenonFileSystem(**options, **cached, skip_instance_cache=True)
    fs.pipe(path, content)
    volume, _ = fs.volume_of(path)
    assert fs.cat(path) == content
    usage = volume.cache_usage()
    assert (usage["memory_limit_bytes"], usage["disk_limit_bytes"]) == (64 * MIB, 300 * MIB)
    _settle(volume, lambda usage: usage["disk_stored_bytes"] >= len(content))
    fs.close()
    # Another process, by storage options.
    code = (
        "import fsspec, sys\n"
        "options = eval(sys.argv[2])\n"
        "with fsspec.open('tenon://' + sys.argv[1], **options) as file: print(len(file.read()))\n"
        "fs = fsspec.filesystem('tenon', **options)\n"
        "print(fs.volume_of(sys.argv[1])[0].cache_usage()['disk_hit_bytes'])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, path, repr({**options, **cached})], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    length, hits = map(int, done.stdout.split())
    assert length == len(content)
    assert hits >= len(content)


def test_memory_and_attributes_have_limits(
    bucket: str, options: dict[str, Any], other_client: pyarrow.fs.S3FileSystem
) -> None:
    fs = fsspec.filesystem("tenon", **options, memory_limit=100 * MIB, metadata_ttl=3600, skip_instance_cache=True)
    with other_client.open_output_stream(f"{bucket}/ttl/one") as file:
        file.write(b"x")
    assert [os.path.basename(name) for name in fs.ls(f"{bucket}/ttl", detail=False)] == ["one"]
    with other_client.open_output_stream(f"{bucket}/ttl/two") as file:
        file.write(b"x")
    # The listing is valid for an hour, or until it is forgotten.
    assert len(fs.ls(f"{bucket}/ttl", detail=False)) == 1
    fs.invalidate_cache()
    assert len(fs.ls(f"{bucket}/ttl", detail=False)) == 2
    assert fs.volume_of(f"{bucket}/ttl")[0].cache_usage()["memory_limit_bytes"] == 100 * MIB
    fs.close()


def test_settings_that_cannot_work_are_refused(bucket: str, options: dict[str, Any], tmp_path: Path) -> None:
    for wrong, text in [
        ({"cache_size": 300 * MIB}, "need cache_dir"),
        ({"shared_cache": "s3://near"}, "need cache_dir"),
        ({"cache_dir": str(tmp_path), "cache_size": 1000}, "at least 256 MiB"),
        ({"shared_cache_profile": "near"}, "needs shared_cache"),
        ({"memory_limit": 1000}, "at least 64 MiB"),
    ]:
        with pytest.raises(ValueError, match=text):
            tenon.Volume(f"s3://{bucket}", **{**options, **wrong})
    with pytest.raises(TypeError, match="cache_size"):
        tenon.Volume(f"s3://{bucket}", cache_dir=str(tmp_path), cache_size="1GiB", **options)
    with pytest.raises(OSError, match="shared cache must be a bucket"):
        tenon.Volume(f"s3://{bucket}", cache_dir=str(tmp_path / "c"), shared_cache="file:///tmp", **options)
    (tmp_path / "volume").mkdir()
    with pytest.raises(OSError, match="leave it out"):
        tenon.Volume(f"file://{tmp_path}/volume", cache_dir=str(tmp_path / "c"))


def test_type_hints_name_the_options_that_the_library_knows(bucket: str, options: dict[str, Any]) -> None:
    hints = typing.get_type_hints(tenon.VolumeOptions)
    assert {"memory_limit", "metadata_ttl", "cache_dir", "cache_size"} <= set(hints)
    # `None` is accepted for each, and an unknown name is not.
    with tenon.Volume(f"s3://{bucket}", **{**dict.fromkeys(hints), **options}):
        pass
