"""Fixtures shared with the tests of whole commands."""

from tests.cli.conftest import byte_data, made_once  # noqa: F401
