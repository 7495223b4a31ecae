"""The log: what Python's logger is told."""

from __future__ import annotations

import logging

import pytest

from slangpy_rt.core.log import log


def test_lines_go_to_the_logger(caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]) -> None:
    with caplog.at_level(logging.DEBUG, "slangpy_rt"):
        log(1, "a device of 100%")
        log(3, "a key")
    assert caplog.record_tuples == [("slangpy_rt", 20, "a device of 100%"), ("slangpy_rt", 10, "a key")]
    assert capsys.readouterr().err == ""
