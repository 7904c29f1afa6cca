"""Libraries that use fsspec, on real files."""

import asyncio
from pathlib import Path
from typing import Any

import fsspec
import numpy
import pandas
import pyarrow
import pyarrow.dataset
import pyarrow.parquet
import pytest
from fsspec.callbacks import Callback
from tenon.fsspec import TenonFileSystem


@pytest.fixture
def frame() -> pandas.DataFrame:
    return pandas.DataFrame({"number": range(10_000), "name": [f"n{number}" for number in range(10_000)]})


def test_the_protocol_is_registered(prefix: str, options: dict[str, Any]) -> None:
    with fsspec.open(f"tenon://{prefix}/text.txt", "w", **options) as file:
        file.write("hello")
    with fsspec.open(f"tenon://{prefix}/text.txt", **options) as file:
        assert file.read() == b"hello"
    assert fsspec.filesystem("tenon", **options).info(f"{prefix}/text.txt")["size"] == 5


def test_pandas(prefix: str, options: dict[str, Any], frame: pandas.DataFrame) -> None:
    for name in ("parquet", "csv"):
        url = f"tenon://{prefix}/new/frame.{name}"
        write, read = getattr(frame, f"to_{name}"), getattr(pandas, f"read_{name}")
        write(url, index=False, storage_options=options)
        pandas.testing.assert_frame_equal(read(url, storage_options=options), frame, check_dtype=False)


def test_pyarrow(fs: TenonFileSystem, prefix: str) -> None:
    table = pyarrow.table({"part": [1, 2] * 500, "value": list(range(1000))})
    pyarrow.parquet.write_to_dataset(table, f"{prefix}/set", partition_cols=["part"], filesystem=fs)
    dataset = pyarrow.dataset.dataset(f"{prefix}/set", filesystem=fs, partitioning="hive")
    found = dataset.to_table(filter=pyarrow.dataset.field("part") == 2)
    assert sorted(found["value"].to_pylist()) == list(range(1, 1000, 2))
    assert len(dataset.files) == 2


def test_duckdb(fs: TenonFileSystem, prefix: str, frame: pandas.DataFrame) -> None:
    import duckdb

    with fs.open(f"{prefix}/frame.parquet", "wb") as file:
        frame.to_parquet(file)
    connection = duckdb.connect()
    connection.register_filesystem(fs)
    (found,) = connection.sql(f"select sum(number) from 'tenon://{prefix}/frame.parquet'").fetchall()
    assert found == (49_995_000,)
    connection.sql(f"copy (select 42 as answer) to 'tenon://{prefix}/answer.parquet' (format parquet)")
    assert pandas.read_parquet(f"{prefix}/answer.parquet", filesystem=fs)["answer"][0] == 42


def test_dask(prefix: str, options: dict[str, Any], frame: pandas.DataFrame) -> None:
    import dask.bag
    import dask.bytes

    url = f"tenon://{prefix}/lines-*.txt"
    lines = dask.bag.from_sequence(range(1000), npartitions=10).map(str)
    # Other processes see new names after `metadata_ttl`, threads at once.
    lines.to_textfiles(url, storage_options=options, scheduler="threads")
    read = dask.bag.read_text(url, storage_options=options).map(int)
    assert read.sum().compute(scheduler="threads") == 499_500


def test_zarr(prefix: str, options: dict[str, Any]) -> None:
    import zarr

    url = f"tenon://{prefix}/array.zarr"
    values = numpy.arange(10_000).reshape(100, 100)
    array = zarr.create_array(url, shape=(100, 100), chunks=(10, 10), dtype="i8", storage_options=options)
    array[:] = values
    assert (zarr.open_array(url, storage_options=options)[:] == values).all()


def test_asynchronous_use(prefix: str, options: dict[str, Any]) -> None:
    async def work() -> None:
        fs = TenonFileSystem(asynchronous=True, skip_instance_cache=True, **options)
        names = [f"{prefix}/{number}" for number in range(50)]
        await asyncio.gather(*(fs._pipe_file(name, name.encode()) for name in names))
        assert await asyncio.gather(*(fs._cat_file(name) for name in names)) == [name.encode() for name in names]
        with pytest.raises(FileNotFoundError):
            await fs._info(f"{prefix}/none")

    asyncio.run(work())


def test_bulk_operations(fs: TenonFileSystem, prefix: str) -> None:
    files = {f"{prefix}/bulk/{number}": b"%d" % number for number in range(100)}
    fs.pipe(files)
    assert fs.cat(list(files)) == files
    assert fs.cat(f"{prefix}/bulk/*") == files
    assert fs.cat(f"{prefix}/bulk", recursive=True) == files
    assert set(fs.find(prefix)) == set(files)
    assert set(fs.glob(f"{prefix}/bulk/1?")) == {f"{prefix}/bulk/1{digit}" for digit in range(10)}
    assert fs.du(prefix) == sum(map(len, files.values()))
    ranges = fs.cat_ranges([*list(files)[10:12], f"{prefix}/none"], [0, 1, 0], [1, 2, 1])
    assert ranges[:2] == [b"1", b"1"]
    assert isinstance(ranges[2], FileNotFoundError)
    fs.mv(f"{prefix}/bulk", f"{prefix}/moved")
    assert len(fs.ls(f"{prefix}/moved")) == 100
    fs.rm(f"{prefix}/moved", recursive=True)
    assert not fs.exists(f"{prefix}/moved")
    assert fs.isdir(prefix) in (True, False)


def test_trees_are_copied_in_few_calls(fs: TenonFileSystem, prefix: str, tmp_path: Path, monkeypatch: Any) -> None:
    files = {f"{letter}/{number}": b"%d" % number for letter in "ab" for number in range(1000)}
    (tmp_path / "empty").mkdir()
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(content)
    calls: list[int] = []
    native = fs.volume_of(prefix)[0].native

    class Counting:
        def __getattr__(self, name: str) -> Any:
            method = getattr(native, name)
            if name in ("get_files", "put_files"):
                return lambda pairs, **more: calls.append(len(pairs)) or method(pairs, **more)
            return method

    monkeypatch.setattr(fs.volume_of(prefix)[0], "_native", Counting())
    progress = Callback()
    fs.put(f"{tmp_path}/", f"{prefix}/tree", recursive=True, callback=progress)
    assert (calls, progress.size, progress.value) == ([1024, 976], 2000, 2000)
    assert {path.removeprefix(f"{prefix}/tree/"): content for path, content in fs.cat(f"{prefix}/tree", recursive=True).items()} == files
    assert fs.isdir(f"{prefix}/tree/empty")
    calls.clear()
    progress = Callback()
    fs.get(f"{prefix}/tree", f"{tmp_path}/back", recursive=True, callback=progress)
    assert (sum(calls), len(calls), progress.value) == (progress.size, 2, progress.size)
    assert {name: (tmp_path / "back" / name).read_bytes() for name in files} == files
    assert (tmp_path / "back" / "empty").is_dir()
    fs.get([f"{prefix}/tree/a/1", f"{prefix}/tree/b/2"], [f"{tmp_path}/one", f"{tmp_path}/two"])
    assert ((tmp_path / "one").read_bytes(), (tmp_path / "two").read_bytes()) == (b"1", b"2")
    with pytest.raises(FileNotFoundError):
        fs.get([f"{prefix}/tree/a/1", f"{prefix}/none"], [f"{tmp_path}/one", f"{tmp_path}/none"])
    with pytest.raises(FileExistsError):
        fs.put([f"{tmp_path}/one"], [f"{prefix}/tree/a/1"], mode="create")


def test_instances_share_a_volume(fs: TenonFileSystem, prefix: str, options: dict[str, Any]) -> None:
    # Regression: fsspec makes an instance for each thread, and each had names of its own: after `makedirs`, a directory
    # stayed empty for the others until its listing was no longer valid.
    other = TenonFileSystem(skip_instance_cache=True, **options)
    fs.makedirs(prefix)
    assert fs.ls(prefix) == []
    other.pipe(f"{prefix}/file", b"x")
    assert fs.ls(prefix, detail=False) == [f"{prefix}/file"]
    other.close()
    assert fs.cat(f"{prefix}/file") == b"x"


def test_a_volume_with_a_prefix(bucket: str, prefix: str, options: dict[str, Any]) -> None:
    fs = fsspec.filesystem("tenon", volume=f"s3://{prefix}", **options)
    fs.pipe("top/file", b"x")
    assert fs.find("") == ["top/file"]
    assert fs.ls("") and fs.cat("top/file") == b"x"
    fs.setxattr("top/file", "user.k", b"v")
    assert (fs.getxattr("top/file", "user.k"), fs.listxattr("top/file")) == (b"v", ["user.k"])
    fs.close()
