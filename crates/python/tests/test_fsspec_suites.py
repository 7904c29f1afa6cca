"""The tests that fsspec has for every file system."""

from typing import Any

import pytest
from fsspec.tests import abstract
from tenon.fsspec import TenonFileSystem


class Fixtures(abstract.AbstractFixtures):
    @pytest.fixture
    def fs(self, options: dict[str, Any]) -> TenonFileSystem:
        return TenonFileSystem(**options)

    @pytest.fixture
    def fs_path(self, prefix: str) -> str:
        return prefix


class TestCopy(abstract.AbstractCopyTests, Fixtures):
    pass


class TestGet(abstract.AbstractGetTests, Fixtures):
    pass


class TestPut(abstract.AbstractPutTests, Fixtures):
    pass


class TestOpen(abstract.AbstractOpenTests, Fixtures):
    pass


class TestPipe(abstract.AbstractPipeTests, Fixtures):
    pass
