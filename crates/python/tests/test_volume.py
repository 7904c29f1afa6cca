"""Volumes: operations, errors, processes."""

import errno
import multiprocessing
import os
import pickle
import stat
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import pyarrow.fs
import pytest
import tenon


def test_files_are_written_read_and_listed(volume: tenon.Volume) -> None:
    volume.write("a/b/one", b"1234567890")
    assert volume.read("a/b/one") == b"1234567890"
    assert volume.read("a/b/one", 2, 5) == b"345"
    assert volume.read("a/b/one", -3) == b"890"
    assert volume.read("/a/./b/../b/one", 8, 100) == b"90"
    assert volume.read("a/b/one", 4, 4) == b""
    assert volume.listdir("a") == ["b"]
    assert [(name, found.kind) for name, found in volume.walk()] == [
        ("a", "directory"),
        ("a/b", "directory"),
        ("a/b/one", "file"),
    ]
    found = volume.stat("a/b/one")
    assert (found.kind, found.size) == ("file", 10)
    assert stat.S_ISREG(found.mode)
    assert abs(found.mtime_ns / 1e9 - time.time()) < 600


def test_errors_are_those_of_python(volume: tenon.Volume) -> None:
    volume.write("dir/file", b"x")
    with pytest.raises(FileNotFoundError) as missing:
        volume.read("dir/none")
    assert missing.value.errno == errno.ENOENT
    assert missing.value.filename == "dir/none"
    with pytest.raises(IsADirectoryError):
        volume.read("dir")
    with pytest.raises(IsADirectoryError):
        volume.write("dir", b"x")
    with pytest.raises(NotADirectoryError):
        volume.listdir("dir/file")
    with pytest.raises(FileExistsError):
        volume.write("dir/file", b"y", exclusive=True)
    with pytest.raises(FileExistsError):
        volume.mkdir("dir")
    with pytest.raises(OSError) as full:
        volume.rmdir("dir")
    assert full.value.errno == errno.ENOTEMPTY
    with pytest.raises(TypeError, match="unknown option 'endpoint'"):
        tenon.Volume("s3://bucket", endpoint="http://x")


def test_many_operations_in_one_call_report_each_outcome(volume: tenon.Volume) -> None:
    names = [f"many/{number:03}" for number in range(200)]
    assert set(volume.write_many((name, name.encode()) for name in names)) == {None}
    contents = volume.read_many([*names, "many/none"])
    assert contents[:-1] == [name.encode() for name in names]
    assert isinstance(contents[-1], FileNotFoundError)
    ranges = volume.read_ranges([("many/007", 5, 8), ("many/008", -1, None), ("none", 0, 1)])
    assert ranges[:2] == [b"007", b"8"]
    assert isinstance(ranges[2], FileNotFoundError)
    assert sorted(volume.listdir("many")) == [name[5:] for name in names]
    removed = volume.remove_many([*names, "many/none"])
    assert set(removed[:-1]) == {None}
    assert isinstance(removed[-1], FileNotFoundError)


def test_files_are_read_ahead_in_a_shuffled_order(volume: tenon.Volume) -> None:
    names = [f"set/{number}" for number in range(300)]
    volume.write_many((name, name.encode()) for name in names)
    first = list(volume.read_ahead(names, seed=7))
    assert all(content == path.encode() for path, content in first)
    assert sorted(path for path, _ in first) == sorted(names)
    assert [path for path, _ in first] == [path for path, _ in volume.read_ahead(names, seed=7)]
    assert [path for path, _ in first] != [path for path, _ in volume.read_ahead(names, seed=8)]
    assert [path for path, _ in volume.read_ahead(names)] == names


def test_file_objects_behave_like_those_of_python(volume: tenon.Volume, tmp_path: Path) -> None:
    local = open(tmp_path / "file", "wb+")
    other = volume.open("file", "wb+")
    for file in (local, other):
        file.write(b"0123456789" * 100_000)
        file.seek(10)
        file.write(b"abc")
        file.seek(-5, os.SEEK_END)
        assert file.read() == b"56789"
        file.truncate(20)
        file.seek(5)
        assert file.read(100) == b"56789abc3456789"
        file.close()
    assert volume.read("file") == (tmp_path / "file").read_bytes()
    with volume.open("file", "ab") as file:
        file.write(b"end")
    assert volume.read("file")[-3:] == b"end"
    with volume.open("lines", "w", encoding="utf-8") as file:
        file.write("ä\nb\n")
    with volume.open("lines", encoding="utf-8") as file:
        assert list(file) == ["ä\n", "b\n"]
    with pytest.raises(FileExistsError):
        volume.open("lines", "xb")
    with pytest.raises(ValueError, match="closed"):
        other.read(1)
    buffer = bytearray(4)
    with volume.open("file", "rb", buffering=0) as file:
        assert file.seek(18) == 18
        assert file.readinto(buffer) == 4
        assert file.readinto(buffer) == 1


def test_a_file_gets_its_name_when_it_is_closed(volume: tenon.Volume, bucket: str, options: dict[str, Any]) -> None:
    volume.write("old", b"old")
    with tenon.Volume(volume.url, **options) as elsewhere:
        file = volume.open("old", "wb")
        file.write(b"new content")
        assert elsewhere.read("old") == b"old"
        file.close()
        assert elsewhere.read("old") == b"new content"


def test_changes_of_other_clients_are_seen(
    volume: tenon.Volume, other_client: pyarrow.fs.S3FileSystem, options: dict[str, Any]
) -> None:
    root = volume.url.removeprefix("s3://")
    volume.write("dir/ours", b"ours")
    with other_client.open_input_stream(f"{root}/dir/ours") as file:
        assert file.read() == b"ours"
    assert volume.listdir("dir") == ["ours"]
    with other_client.open_output_stream(f"{root}/dir/theirs") as file:
        file.write(b"theirs")
    assert volume.read("dir/theirs") == b"theirs"
    volume.refresh()
    assert sorted(volume.listdir("dir")) == ["ours", "theirs"]


def test_names_and_attributes_change(volume: tenon.Volume) -> None:
    volume.write("x/file", b"content")
    volume.rename("x", "y")
    assert volume.read("y/file") == b"content"
    assert not volume.exists("x/file")
    volume.copy("y/file", "y/copy")
    assert volume.read("y/copy") == b"content"
    volume.symlink("file", "y/link")
    assert volume.readlink("y/link") == "file"
    assert volume.read("y/link") == b"content"
    assert volume.stat("y/link", follow=False).kind == "link"
    volume.chmod("y/file", 0o600)
    volume.utime("y/file", 1_000_000_000, 2_000_000_000)
    found = volume.stat("y/file")
    assert (stat.S_IMODE(found.mode), found.mtime_ns) == (0o600, 2_000_000_000)
    volume.setxattr("y/file", "user.colour", b"blue")
    assert volume.getxattr("y/file", "user.colour") == b"blue"
    assert "user.colour" in volume.listxattr("y/file")
    # New content keeps the metadata of a file.
    volume.write("y/file", b"other")
    assert volume.getxattr("y/file", "user.colour") == b"blue"
    volume.removexattr("y/file", "user.colour")
    assert "user.colour" not in volume.listxattr("y/file")
    volume.truncate("y/file", 2)
    assert volume.read("y/file") == b"ot"
    volume.makedirs("y/deep/down")
    volume.rmtree("y")
    assert volume.listdir() == []


def test_files_are_copied_to_and_from_the_local_disk(volume: tenon.Volume, tmp_path: Path) -> None:
    content = {"small": b"small", "empty": b"", "large": os.urandom(20 << 20)}
    for name, value in content.items():
        (tmp_path / name).write_bytes(value)
    put = volume.put_many((str(tmp_path / name), f"up/{name}") for name in content)
    assert put == [None] * 3
    got = volume.get_many((f"up/{name}", str(tmp_path / f"{name}.back")) for name in content)
    assert got == [None] * 3
    for name, value in content.items():
        assert (tmp_path / f"{name}.back").read_bytes() == value
    (failed,) = volume.put_many([(str(tmp_path / "none"), "up/none")])
    assert isinstance(failed, FileNotFoundError)


def test_threads_share_a_volume(volume: tenon.Volume) -> None:
    wrong = []

    def work(number: int) -> None:
        for turn in range(20):
            volume.write(f"t{number}/{turn}", b"%d" % turn)
            if volume.read(f"t{number}/{turn}") != b"%d" % turn:
                wrong.append((number, turn))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def _read(volume: tenon.Volume, path: str) -> bytes:
    return volume.read(path)


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_other_processes_use_a_volume(volume: tenon.Volume, method: str) -> None:
    volume.write("shared", b"for all")
    context: Any = multiprocessing.get_context(method)
    with context.Pool(2) as pool:
        assert pool.starmap(_read, [(volume, "shared")] * 4) == [b"for all"] * 4
    assert volume.read("shared") == b"for all"
    copy = pickle.loads(pickle.dumps(volume))
    assert copy.read("shared") == b"for all"
    copy.close()


def test_a_closed_volume_refuses_and_leaves_no_state(bucket: str, options: dict[str, Any], tmp_path: Path) -> None:
    code = (
        "import sys, tenon, os\n"
        "v = tenon.Volume(sys.argv[1], **eval(sys.argv[2]))\n"
        "v.write('left', b'x'); f = v.open('open', 'wb'); f.write(b'y')\n"
        "assert os.listdir(os.environ['XDG_STATE_HOME'] + '/tenon/private')\n"
        "w = tenon.Volume(sys.argv[1], **eval(sys.argv[2])); w.close()\n"
        "try: w.read('left')\n"
        "except OSError as error: print(error.errno)\n"
    )
    environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path)}
    done = subprocess.run(
        [os.sys.executable, "-c", code, f"s3://{bucket}/ended", repr(options)],  # type: ignore[attr-defined]
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout.strip()) == (0, str(errno.EBADF)), done.stderr
    assert os.listdir(tmp_path / "tenon/private") == []


def test_a_volume_of_this_machine_is_open_in_one_process(tmp_path: Path) -> None:
    program = os.environ.get("TENON_TEST_PROGRAM")
    root = str(tmp_path / "volume")
    subprocess.run([program, "format", root], check=True, capture_output=True)  # type: ignore[list-item]
    with tenon.Volume(root) as volume:
        volume.write("dir/file", b"kept")
        with pytest.raises(OSError) as busy:
            tenon.Volume(root)
        assert busy.value.errno == errno.EBUSY
        assert "S3 endpoint" in str(busy.value)
    with tenon.Volume(root) as volume:
        assert volume.read("dir/file") == b"kept"
