"""Servers and volumes for the tests. `tests/main.rs` starts the server and names it in the environment."""

import os
import secrets
from collections.abc import Iterator
from typing import Any

import pyarrow.fs
import pytest
import tenon
from tenon.fsspec import TenonFileSystem


@pytest.fixture(scope="session")
def options() -> dict[str, Any]:
    """Options to reach the server."""
    return {
        "endpoint_url": os.environ["TENON_TEST_ENDPOINT"],
        "key": os.environ["TENON_TEST_KEY"],
        "secret": os.environ["TENON_TEST_SECRET"],
        "region": "us-east-1",
    }


@pytest.fixture(scope="session")
def other_client(options: dict[str, Any]) -> pyarrow.fs.S3FileSystem:
    """Another client of the server, which knows nothing of Tenon."""
    return pyarrow.fs.S3FileSystem(
        access_key=options["key"],
        secret_key=options["secret"],
        endpoint_override=options["endpoint_url"],
        region=options["region"],
        allow_bucket_creation=True,
    )


@pytest.fixture(scope="session")
def bucket(other_client: pyarrow.fs.S3FileSystem) -> str:
    name = f"python-{secrets.token_hex(6)}"
    other_client.create_dir(name)
    return name


@pytest.fixture(scope="session")
def fs(options: dict[str, Any]) -> TenonFileSystem:
    return TenonFileSystem(**options)


@pytest.fixture
def prefix(bucket: str) -> str:
    """A directory of the bucket for one test, which does not exist yet."""
    return f"{bucket}/{secrets.token_hex(6)}"


@pytest.fixture
def volume(bucket: str, options: dict[str, Any]) -> Iterator[tenon.Volume]:
    with tenon.Volume(f"s3://{bucket}/{secrets.token_hex(6)}", **options) as volume:
        yield volume
