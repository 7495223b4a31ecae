"""Searches that go wrong, and what they may not change: contents of arguments, what is printed, entries on disk."""

from __future__ import annotations

import dataclasses
import io
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import slangpy_rt as spy
from slangpy_rt.calls.search import Search
from slangpy_rt.core.disk_cache import DiskCache
from slangpy_rt.tuning import progress
from slangpy_rt.tuning.comparison import as_arrays, difference
from slangpy_rt.tuning.store import stored
from tests.depth import one_device

pytestmark = one_device

SOURCE = """
extern static const int K = 1;
struct Pair { float x; float y; };
void count(inout float x) { x += 1.0f; }
float plain(float x) { return x + 1.0f; }
float other(float x) { return x + 2.0f; }
float scaled(float x) { return x * float(K); }
void scale_to(out float a, float x) { a = x * float(K); }
Pair pair(float x) { return { x * float(K), x }; }
void count_pair(inout Pair p) { p.x += 1.0f; p.y += 2.0f; }
float told(float x) { printf("x is %g\\n", x); return x; }
[Differentiable] float product(float a, float b) { return a * b; }
[Differentiable] void product_to(float a, out float b) { b = a * 3.0f; }
"""
X = np.linspace(0, 1, 1000, dtype=np.float32)
CHOICES = {"K": [1, 2, 3]}


@pytest.fixture
def module(device: spy.Device) -> spy.Module:
    return spy.Module.load_from_source(device, "tuning_failures", SOURCE)


def dropped(rows: Any) -> list[tuple[int, bool]]:
    return sorted((row.config.K, bool(row.dropped)) for row in rows)


def test_references_and_structs_are_compared(module: spy.Module) -> None:
    number = spy.ValueRef(0.0)
    want = [(1, False), (2, True), (3, True)]
    assert dropped(module.scale_to.constants(CHOICES).tune(check=1e-3).timings(number, 2.0)) == want
    assert number.value == 0.0
    assert dropped(module.pair.constants(CHOICES).tune(check=1e-3).timings(2.0)) == want
    assert dropped(module.pair.constants(CHOICES).tune(check=1e-3).timings(X)) == want


def test_results_are_compared_with_those_of_the_first(module: spy.Module) -> None:
    def found(*choices: int) -> list[tuple[int, bool]]:
        return dropped(module.scaled.constants({"K": list(choices)}).tune(check=1e-3).timings(X))

    assert found(2, 1) == [(1, True), (2, False)]
    # Times that are on disk say nothing of another order, or of another first one.
    assert found(1, 2) == [(1, False), (2, True)]
    assert found(2, 1, 5) == [(1, True), (2, False), (5, True)]


def test_differences() -> None:
    padded = np.dtype({"names": ["a", "b"], "formats": ["u1", "f4"], "offsets": [0, 4], "itemsize": 8})
    one, two = np.full(8, 1, np.uint8), np.full(8, 2, np.uint8)
    one[:1], two[:1], one[4:], two[4:] = 7, 7, 0, 0
    assert difference(as_arrays(one.view(padded)), as_arrays(two.view(padded))) == 0.0
    assert difference([], as_arrays(1.0)) == difference(as_arrays({"x": 1.0}), as_arrays({"x": [1.0]})) == np.inf
    assert difference(as_arrays((1.0, {"x": 4.0})), as_arrays((1.0, {"x": 5.0}))) == 0.25
    kept = np.zeros(3)
    (copy,) = as_arrays(kept)
    kept += 1
    assert not copy.any()


def test_measured_runs_print_nothing(device: spy.Device, module: spy.Module, capfd: Any) -> None:
    told = module.told.constants(CHOICES)
    module.told(1.0)
    told(2.0)
    module.told(3.0)
    device.synchronize()
    assert capfd.readouterr().out == "x is 1\nx is 2\nx is 3\n"


def test_values_of_a_users_functions(module: spy.Module) -> None:
    def tune(**named: Any) -> Any:
        return module.plain.tune([{"group_size": 32}, {"group_size": 64}], **named)

    def run_and_say(run: Any) -> Any:
        run()
        return np.float32(0.5)

    rows = tune(bench=run_and_say).timings(1.0)
    assert [row.us for row in rows] == [5e5, 5e5]
    for value in (None, "fast", float("nan")):
        with pytest.raises(spy.BindError, match=r"model returned .*; a number was expected"):
            tune(model=lambda config, call, value=value: value, top_k=1)(1.0)
    for value in ([{"group_size": 32}], [[]], {1, 2}, None):
        with pytest.raises(spy.BindError, match="prune returned"):
            tune(prune=lambda configs, call, value=value: value)(1.0)


def test_a_search_inside_of_a_search(module: spy.Module) -> None:
    other = module.other.constants(CHOICES)

    def bench(run: Any) -> float:
        other(X)
        run()
        return 1.0

    np.testing.assert_array_equal(module.plain.constants(CHOICES).tune(bench=bench)(X), X + 1)
    itself = module.plain.constants(CHOICES).tune(bench=lambda run: itself(X))
    for _ in range(2):
        with pytest.raises(spy.BindError, match="let bench call what it is passed"):
            itself(X)


@pytest.mark.one_device
@pytest.mark.parametrize("closed", [False, True])
def test_programs_without_standard_error(
    device: spy.Device, module: spy.Module, monkeypatch: pytest.MonkeyPatch, closed: bool
) -> None:
    monkeypatch.setattr(progress, "_QUIET", 0.0)
    gone = io.StringIO()
    gone.close()
    monkeypatch.setattr(sys, "stderr", gone if closed else None)
    f = module.plain.tune([{"group_size": 32}, {"group_size": 64}], bench=lambda run: 1.0)
    assert f(1.0) == 2.0


@pytest.mark.one_device
def test_progress_is_shown_on_a_terminal_only(
    device: spy.Device, module: spy.Module, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "_QUIET", 0.0)
    said = io.StringIO()
    monkeypatch.setattr(sys, "stderr", said)
    f = module.plain.tune([{"group_size": 32}, {"group_size": 64}], bench=lambda run: 1.0)
    assert f(1.0) == 2.0 and said.getvalue() == ""


def test_a_device_that_closes_leaves_host_memory(backend_name: str) -> None:
    device = spy.Device(backend_name)
    module = spy.Module.load_from_source(device, "tuning_failures", SOURCE)

    def bench(run: Any) -> float:
        run()
        device.close()
        return 1.0

    host = X.copy()
    with pytest.raises(spy.DeviceError, match="closed"):
        module.count.constants(CHOICES).tune(bench=bench)(host)
    np.testing.assert_array_equal(host, X)


def test_an_interrupt_of_what_puts_contents_back(
    device: spy.Device, module: spy.Module, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_back, calls = Search._put_back, []

    def interrupted(self: Search, snapshot: Any) -> None:
        calls.append(snapshot)
        if len(calls) == 1:
            raise KeyboardInterrupt
        put_back(self, snapshot)

    monkeypatch.setattr(Search, "_put_back", interrupted)
    x, host = spy.Tensor.from_numpy(device, X), X.copy()
    for array in (x, host):
        calls.clear()
        with pytest.raises(KeyboardInterrupt):
            module.count.tune([{"K": 1}, {"K": 2}], bench=lambda run: (run(), 1.0)[1])(array)
    np.testing.assert_array_equal(x.to_numpy(), X)
    np.testing.assert_array_equal(host, X)
    assert not device.diagnostics.muted


def test_classes_with_slots_are_written_once(device: spy.Device, module: spy.Module) -> None:
    @dataclasses.dataclass(slots=True)
    class Pair:
        x: Any
        y: Any

    pair = Pair(X.copy(), spy.Tensor.from_numpy(device, X))
    module.count_pair.constants(CHOICES)(pair)
    np.testing.assert_array_equal(pair.x, X + 1)
    np.testing.assert_array_equal(pair.y.to_numpy(), X + 2)


def test_times_of_a_text_that_changes_are_not_kept(device: spy.Device, tmp_path: Path) -> None:
    file = tmp_path / "edited.slang"
    text = "extern static const int K = 1;\nfloat edited_meanwhile(float x) {{ return x + {} + K * 0; }}"
    file.write_text(text.format(1))
    f = spy.Module.load_from_file(device, file).edited_meanwhile.constants({"K": [1, 2]})

    def prune(configs: Any, call: Any) -> Any:
        file.write_text(text.format(20))
        device.reload()
        return configs

    x = spy.Tensor.from_numpy(device, X)
    before = {e.key for e in device.cache.entries() if e.kind == "tuning"}
    np.testing.assert_array_equal(f.tune(prune=prune)(x).to_numpy(), X + 20)
    assert {e.key for e in device.cache.entries() if e.kind == "tuning"} <= before
    np.testing.assert_array_equal(f(x).to_numpy(), X + 20)


WHOLE = {"us": 1.0, "spread": 0.0, "runs": 3, "dropped": ""}
DAMAGED = [
    {}, {"us": 1.0}, *[WHOLE | {"us": us} for us in (10**400, -1.0, float("nan"), float("inf"), "1", None, [])],
    WHOLE | {"spread": 10**400}, WHOLE | {"spread": []}, WHOLE | {"runs": None}, WHOLE | {"dropped": 4},
]  # fmt: skip


@pytest.mark.parametrize("meta", DAMAGED)
def test_damaged_entries_are_no_times(tmp_path: Path, meta: dict[str, Any]) -> None:
    cache = DiskCache.open(tmp_path, 1 << 30)
    key = DiskCache.key("tuning", "damaged")
    cache.put(key, meta, b"")
    assert stored(cache, key, spy.Config({"K": 1})) is None


@pytest.mark.parametrize("values", [[1, 2, 3], [2, 1, 3], [2, 3, 1]], ids=str)
def test_macros_whose_text_is_refused_are_dropped(device: spy.Device, values: list[int]) -> None:
    """As constants are whose kernel does not compile, wherever they stand in the list."""
    text = """
#if N == 2
#error two is not supported
#elif N == 3
float other(float x) { return x; }
#else
float f(float x) { return x * N; }
#endif
float g(float x) { return x + N; }
struct S { float a[N]; }
"""
    module = spy.Module.load_from_source(device, f"refused_{values}", text, defines={"N": values, "M": 1})
    rows = module.g.timings(X)
    assert sorted(row.config.N for row in rows) == [1, 2, 3]
    assert {row.config.N for row in rows if row.dropped} == {2}
    refused = next(row for row in rows if row.dropped)
    assert refused is rows[-1]
    assert refused.dropped.startswith(
        f"Slang could not load module '{module.name}' from refused_{values}.slang: error["
    )
    np.testing.assert_allclose(module.g(X), X + rows[0].config.N)
    with pytest.raises(spy.CompileError, match="two is not supported"):
        spy.Module.load_from_source(device, "all_refused", text, defines={"N": [2, 2]})
    if values[0] == 1:
        rows = module.f.group_size([32, 64]).timings(X)
        assert {row.config.N for row in rows if not row.dropped} == {1}
        assert {row.dropped for row in rows if row.config.N == 3} == {"the module has no 'f' with N=3."}
        np.testing.assert_allclose(module.f(X), X)
        np.testing.assert_allclose(module.f.return_type("numpy")(X), X)
