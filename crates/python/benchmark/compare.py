"""Reads the same objects by `tenon://` and by s3fs, in turns, and prints rate and client's CPU time of each.

Usage: compare.py [--small N] [--parquet N] [--rounds N], with the server in TENON_BENCH_ENDPOINT, TENON_BENCH_KEY and
TENON_BENCH_SECRET. Each measurement runs in a process of its own, which starts with nothing cached.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

BUCKET = "python-benchmark"
SMALL_BYTES = 4096
PARQUET_ROWS = 20_000


def options(kind: str) -> dict[str, Any]:
    """Options of a file system; both get the same server and keys."""
    server, key, secret = (os.environ[f"TENON_BENCH_{name}"] for name in ("ENDPOINT", "KEY", "SECRET"))
    own = {"client_kwargs": {"region_name": "us-east-1"}} if kind == "s3" else {"region": "us-east-1"}
    return {"endpoint_url": server, "key": key, "secret": secret, **own}


def file_system(kind: str) -> Any:
    import fsspec

    return fsspec.filesystem(kind, **options(kind))


def small_names(count: int) -> list[str]:
    return [f"{BUCKET}/small/{number // 1000:04}/{number:06}" for number in range(count)]


def parquet_names(count: int) -> list[str]:
    return [f"{BUCKET}/parquet/{number:06}.parquet" for number in range(count)]


def cat(fs: Any, names: list[str]) -> int:
    return sum(len(content) for content in fs.cat(names).values())


def cat_after_listing(fs: Any, names: list[str]) -> int:
    top = "/".join(names[0].split("/")[:2])
    return cat(fs, fs.find(top)[: len(names)])


def get(fs: Any, names: list[str]) -> int:
    import tempfile

    with tempfile.TemporaryDirectory(dir="/dev/shm") as local:
        targets = [f"{local}/{number}" for number in range(len(names))]
        fs.get(names, targets)
        return sum(os.path.getsize(target) for target in targets)


def pipe(fs: Any, names: list[str]) -> int:
    content = os.urandom(SMALL_BYTES)
    fs.pipe({name.replace("/small/", f"/written-{os.getpid()}/"): content for name in names})
    return len(names) * SMALL_BYTES


def dataset(fs: Any, names: list[str]) -> int:
    import pyarrow.dataset

    found = pyarrow.dataset.dataset(names, filesystem=fs, format="parquet")
    return found.to_table(columns=["a", "c"]).num_rows


def pandas_each(fs: Any, names: list[str]) -> int:
    import pandas

    return sum(len(pandas.read_parquet(name, filesystem=fs)) for name in names)


WORK: dict[str, tuple[Callable[[Any, list[str]], int], Callable[[int], list[str]], str]] = {
    "cat": (cat, small_names, "small"),
    "find and cat": (cat_after_listing, small_names, "small"),
    "get": (get, small_names, "small"),
    "pipe": (pipe, small_names, "small"),
    "dataset, 2 of 4 columns": (dataset, parquet_names, "parquet"),
    "pandas, one after the other": (pandas_each, parquet_names, "parquet"),
    "cat parquet": (cat, parquet_names, "parquet"),
}


def measure(kind: str, work: str, count: int) -> dict[str, float]:
    """Runs in a process of its own: opens the file system, warms up the imports and does the work once."""
    operation, names, _ = WORK[work]
    import pandas  # noqa: F401
    import pyarrow.dataset  # noqa: F401

    fs = file_system(kind)
    fs.exists(f"{BUCKET}/none")
    before, began = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
    result = operation(fs, names(count))
    elapsed, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_SELF)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"seconds": elapsed, "cpu": cpu, "result": result, "peak_mib": after.ru_maxrss / 1024}


def prepare(small: int, parquet: int) -> None:
    """Makes the bucket and the objects with s3fs, so that Tenon has no part in them."""
    import io

    import numpy
    import pyarrow
    import pyarrow.parquet

    fs = file_system("s3")
    if not fs.exists(BUCKET):
        fs.mkdir(BUCKET)
    content = os.urandom(SMALL_BYTES)
    names = small_names(small)
    for at in range(0, small, 10_000):
        fs.pipe({name: content for name in names[at : at + 10_000]})
    random = numpy.random.default_rng(1)
    columns = {name: random.integers(0, 1 << 40, PARQUET_ROWS) for name in "abcd"}
    table = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table(columns), table)
    fs.pipe({name: table.getvalue() for name in parquet_names(parquet)})


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--small", type=int, default=10_000)
    parser.add_argument("--parquet", type=int, default=1_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only")
    parser.add_argument("--measure", nargs=3)
    arguments = parser.parse_args()
    if arguments.measure:
        kind, work, count = arguments.measure
        print(json.dumps(measure(kind, work, int(count))), flush=True)
        # Threads of pyarrow sometimes abort the end of the interpreter, whichever file system they use.
        os._exit(0)
    prepare(arguments.small, arguments.parquet)
    counts = {"small": arguments.small, "parquet": arguments.parquet}
    print("| work | files | s3fs, files/s | tenon, files/s | rate | s3fs, CPU s | tenon, CPU s | CPU |")
    print("|---|---|---|---|---|---|---|---|")
    for work, (_, _, kind_of_files) in WORK.items():
        if arguments.only and work not in arguments.only.split(";"):
            continue
        count, found = counts[kind_of_files], {}
        for _ in range(arguments.rounds):
            for kind in ("s3", "tenon"):
                command = [sys.executable, __file__, "--measure", kind, work, str(count)]
                said = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
                found.setdefault(kind, []).append(json.loads(said))
        if len({run["result"] for runs in found.values() for run in runs}) != 1:
            raise SystemExit(f"{work}: the results differ")
        middle = {
            kind: {name: statistics.median(run[name] for run in runs) for name in ("seconds", "cpu")}
            for kind, runs in found.items()
        }
        s3, tenon = middle["s3"], middle["tenon"]
        print(
            f"| {work} | {count:,} | {count / s3['seconds']:,.0f} | {count / tenon['seconds']:,.0f} "
            f"| {s3['seconds'] / tenon['seconds']:.2f} | {s3['cpu']:.2f} | {tenon['cpu']:.2f} "
            f"| {tenon['cpu'] / s3['cpu']:.2f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
