"""Choices are searched on the device: right results and winners, arguments as they were, winners on disk."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import slangpy_rt as spy
from slangpy_rt.core.config import CONFIG
from slangpy_rt.core.disk_cache import DiskCache
from slangpy_rt.tuning.call_info import CallInfo
from slangpy_rt.tuning.kind import kind_of_call
from slangpy_rt.tuning.policy import policy_of
from tests.depth import deep, every_case, one_device

pytestmark = one_device

SOURCE = """
extern static const int STEPS = 1;
extern static const float2 PAIR = float2(1, 2);
// The time grows with STEPS, and the result does not depend on it.
float slow(float x)
{
    float s = x;
    for (int i = 0; i < STEPS * 2000; ++i)
        s = s * 0.5f + 0.25f;
    return s > 1e9f ? 0.0f : x + 1.0f;
}
void count(inout float x) { x += 1.0f; }
float scaled(float x) { return x * float(STEPS); }
float summed(float x) { return x + PAIR.x + PAIR.y; }
[Differentiable] float cube(float x) { return x * x * x; }
"""
KERNEL = """
[shader("compute")] [numthreads(TX, 1, 1)]
void add(uint3 id : SV_DispatchThreadID, RWTensor<float, 1> data, int n)
{
    if (id.x < n)
        data[id.x] += 1.0f;
}
float width(float x) { return x + TX; }
"""
X = np.linspace(0, 1, 5000, dtype=np.float32)


@pytest.fixture
def module(device: spy.Device) -> spy.Module:
    return spy.Module.load_from_source(device, "tuning", SOURCE)


def test_the_fastest_is_chosen(device: spy.Device, module: spy.Module) -> None:
    slow = module.slow.constants({"STEPS": [64, 1, 16]})
    x = spy.Tensor.from_numpy(device, X)
    np.testing.assert_array_equal(slow(x).to_numpy(), X + 1)
    rows = slow.timings(x)
    assert [row.config.STEPS for row in rows] == [1, 16, 64]
    assert slow.best(x) == spy.Config({"STEPS": 1}) and all(row.runs for row in rows)
    assert "STEPS=1" in slow.explain(x) and "slow" in slow.source(x)
    np.testing.assert_array_equal(slow.bind(x)().to_numpy(), X + 1)


def test_arguments_are_written_once(device: spy.Device, module: spy.Module) -> None:
    count = module.count.constants({"STEPS": [1, 2, 3]})
    x = spy.Tensor.from_numpy(device, X)
    count(x)
    np.testing.assert_array_equal(x.to_numpy(), X + 1)
    count.best(x)
    np.testing.assert_array_equal(x.to_numpy(), X + 1)
    # Every second element: what lies between them is not the call's.
    y = spy.Tensor.from_numpy(device, X)
    count(y[::2])
    want = X.copy()
    want[::2] += 1
    np.testing.assert_array_equal(y.to_numpy(), want)
    host = X.copy()
    count(host)
    np.testing.assert_array_equal(host, X + 1)
    number = spy.ValueRef(3.0)
    count(number)
    assert number.value == 4.0


def test_gradients_are_added_once(device: spy.Device, module: spy.Module) -> None:
    cube = module.cube.constants({"STEPS": [1, 2]})
    x = spy.Tensor.from_numpy(device, X).with_grads()
    seed = spy.Tensor.from_numpy(device, np.ones_like(X))
    out = spy.Tensor.zeros(device, X.shape).with_grads(grad_in=seed)
    assert cube.bwds is cube.bwds
    cube.bwds(x, _result=out)
    np.testing.assert_allclose(x.grad_out.to_numpy(), 3 * X**2, rtol=1e-6)
    cube.bwds(x, _result=out)
    np.testing.assert_allclose(x.grad_out.to_numpy(), 6 * X**2, rtol=1e-6)


@deep
def test_macros_and_kernels(device: spy.Device) -> None:
    module = spy.Module.load_from_source(device, "tuned_kernel", KERNEL, defines={"TX": [32, 64], "OTHER": 1})
    assert module.add is module.add and "TX" in repr(module.add)
    data = spy.Tensor.zeros(device, 1000)
    for n in (1, 2):
        module.add.dispatch(lambda c: spy.cdiv(1000, c.TX) * c.TX, data, 1000)
        np.testing.assert_array_equal(data.to_numpy(), np.full(1000, n, np.float32))
    assert module.add.best(1024, data, 1000).TX in (32, 64)
    commands = device.command_list()
    module.add.append_to(commands, lambda c: spy.cdiv(1000, c.d("TX")) * c["TX"], data, 1000)
    module.width.append_to(commands, data, _result=data)
    commands.submit()
    assert data.to_numpy()[7] in (3 + 32, 3 + 64)


def test_lists_of_vectors_and_lists_that_are_vectors(device: spy.Device, module: spy.Module) -> None:
    assert isinstance(module.summed.constants({"PAIR": [1.0, 2.0]}), spy.Function)
    assert module.summed.constants({"PAIR": [10.0, 20.0]})(1.0) == 31.0
    pairs = module.summed.constants({"PAIR": [(1.0, 2.0), (2.0, 1.0)]})
    assert isinstance(pairs, spy.Tuned) and pairs(np.float32(1)) == 4.0


def test_group_sizes_and_combinations(device: spy.Device, module: spy.Module) -> None:
    f = module.slow.constants({"STEPS": [1, 2]}).group_size([32, (8, 8)])
    assert len(f.configs) == 4 and f.configs[1] == spy.Config({"STEPS": 1, "group_size": (8, 8)})
    image = X.reshape(50, 100)
    np.testing.assert_array_equal(f(image), image + 1)
    assert f.best(image).STEPS in (1, 2)
    g = module.slow.tune([{"STEPS": 1, "group_size": 64}, {"STEPS": 90, "group_size": 32}])
    np.testing.assert_array_equal(g(X), X + 1)
    assert g.best(X).STEPS == 1


def test_other_results_are_dropped(device: spy.Device, module: spy.Module) -> None:
    x = spy.Tensor.from_numpy(device, X)
    f = module.scaled.constants({"STEPS": [2, 1, 3]}).tune(check=1e-3)
    np.testing.assert_array_equal(f(x).to_numpy(), X * 2)
    rows = f.timings(x)
    assert [row.us is None for row in rows] == [False, True, True] and "differ" in rows[-1].dropped


def test_what_does_not_compile_is_dropped(device: spy.Device) -> None:
    text = "float f(float x) {\n#if BAD\n return nothing;\n#else\n return x + 1;\n#endif\n}"
    module = spy.Module.load_from_source(device, "half_bad", text, defines={"BAD": [0]})
    assert module.f(1.0) == 2.0
    kernel = "[numthreads(N, 1, 1)] void k(uint3 t : SV_DispatchThreadID, RWTensor<float, 1> a) { a[t.x] = 1; }"
    k = spy.Module.load_from_source(device, "too_large", kernel, defines={"N": [4096, 64, 0]}).k
    a = spy.Tensor.zeros(device, 64)
    k.dispatch(64, a)
    np.testing.assert_array_equal(a.to_numpy(), np.ones(64, np.float32))
    rows = k.timings(64, a)
    assert rows[0].config.N == 64 and sum(bool(row.dropped) for row in rows) == 2
    none = spy.Module.load_from_source(device, "too_large", kernel, defines={"N": [4096, 2048]}).k
    with pytest.raises(spy.SlangPyRtError, match=r"none of 2 configurations runs"):
        none.dispatch(64, a)


def test_keys(device: spy.Device, module: spy.Module) -> None:
    asked: list[Any] = []

    def bench(run: Any) -> float:
        asked.append(run())
        return 1.0

    small, large = (spy.Tensor.from_numpy(device, X[:n]) for n in (100, 120))
    by_shape = module.slow.tune([{"STEPS": 1}, {"STEPS": 2}], bench=bench, budget=0)
    by_shape(small), by_shape(small), by_shape(large)
    assert len(asked) == 4
    rounded = by_shape.tune(key="pow2", bench=bench, budget=0)
    rounded(small), rounded(large)
    assert len(asked) <= 6
    own = by_shape.tune(key=lambda call: call.dtypes["x"], bench=bench, budget=0)
    count = len(asked)
    own(small), own(large)
    assert len(asked) - count <= 2
    with pytest.raises(spy.BindError, match="no argument"):
        by_shape.tune(key=("nothing",))(small)


def test_prune_and_model(device: spy.Device, module: spy.Module) -> None:
    x = spy.Tensor.from_numpy(device, X)
    every = [{"STEPS": n} for n in (5, 6, 7, 8)]
    one = module.slow.tune(every, prune=lambda configs, call: [c for c in configs if c.STEPS == 7])
    assert one.best(x).STEPS == 7 and one.timings(x)[0].us is None
    two = module.slow.tune(every, model=lambda c, call: -c.STEPS * call.shapes["x"][0], top_k=2)
    assert {row.config.STEPS for row in two.timings(x)} == {7, 8}
    with pytest.raises(spy.BindError, match="prune leaves none"):
        module.slow.tune(every, prune=lambda configs, call: [])(x)


@pytest.mark.parametrize(
    ("use", "words"),
    [
        (lambda m: m.slow.constants({"STEPS": []}), "empty"),
        (lambda m: m.slow.constants({"STEPS": [1, None]}), "a choice of 'STEPS'"),
        (lambda m: m.slow.group_size([]), "empty"),
        (lambda m: m.slow.group_size([0, 32]), "1 to 1024"),
        (lambda m: m.slow.group_size([32]).group_size([64]), "already"),
        (lambda m: m.slow.tune([]), "configs is empty"),
        (lambda m: m.slow.tune(None), "configs"),
        (lambda m: m.slow.tune([{"STEPS": 1}, {"group_size": 1}]), "equal names"),
        (lambda m: m.slow.tune([{"STEPS": 1}], budget=-1), "budget"),
        (lambda m: m.slow.tune([{"STEPS": 1}], budget=float("nan")), "budget"),
        (lambda m: m.slow.tune([{"STEPS": 1}], top_k=2), "model"),
        (lambda m: m.slow.tune([{"STEPS": 1}], key=3), "key"),
        (lambda m: m.slow.tune([{"STEPS": 1}], bench="cold"), "bench"),
        (lambda m: m.slow.tune([{"STEPS": 1}], prune=3), "prune"),
        (lambda m: m.slow.constants({"STEPS": list(range(2000))}), "1,024"),
        (lambda m: m.slow.constants({"NOTHING": [1, 2]})(1.0), "no constant 'NOTHING'"),
        (lambda m: m.slow.tune([{"STEPS": 1}, {"STEPS": 2}])("text"), "argument 'x'"),
        (lambda m: m.slow.tune([{"STEPS": 1}, {"STEPS": 2}], bench=lambda run: "fast")(1.0), "seconds"),
        (lambda m: m.slow.tune([{"STEPS": 1}, {"STEPS": 2}], prune=lambda c, i: [3])(1.0), "prune returned"),
    ],
)
def test_errors(module: spy.Module, use: Any, words: str) -> None:
    with pytest.raises(spy.BindError, match=words):
        use(module)
    assert module.slow.constants({"STEPS": [1, 2]})(1.0) == 2.0


def test_a_users_error_leaves_the_arguments(device: spy.Device, module: spy.Module) -> None:
    runs = []

    def bench(run: Any) -> float:
        run()
        runs.append(run)
        if len(runs) == 3:
            raise KeyboardInterrupt
        return 1.0

    x = spy.Tensor.from_numpy(device, X)
    f = module.count.tune([{"STEPS": 1}, {"STEPS": 2}], bench=bench)
    with pytest.raises(KeyboardInterrupt):
        f(x)
    np.testing.assert_array_equal(x.to_numpy(), X)
    f(x)
    np.testing.assert_array_equal(x.to_numpy(), X + 1)


def test_many_threads(device: spy.Device, module: spy.Module) -> None:
    f = module.slow.tune([{"STEPS": 1}, {"STEPS": 3}], budget=0.05)
    wrong: list[Any] = []

    def work() -> None:
        for _ in range(5):
            out = f(spy.Tensor.from_numpy(device, X)).to_numpy()
            if not np.array_equal(out, X + 1):
                wrong.append(out)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_an_edit_is_measured_anew(device: spy.Device, tmp_path: Path) -> None:
    file = tmp_path / "edited.slang"
    file.write_text("extern static const int K = 1;\nfloat f(float x) { return x + 1 + K * 0; }")
    f = spy.Module.load_from_file(device, file).f.constants({"K": [1, 2]})
    x = spy.Tensor.from_numpy(device, X)
    np.testing.assert_array_equal(f(x).to_numpy(), X + 1)
    file.write_text("extern static const int K = 1;\nfloat f(float x) { return x + 22 + K * 0; }")
    device.reload()
    np.testing.assert_array_equal(f(x).to_numpy(), X + 22)


def test_configs() -> None:
    config = spy.Config({"TX": 1, "name": "a"})
    assert config == spy.Config({"TX": 1, "name": "a"}) and config != spy.Config({"TX": True, "name": "a"})
    assert dict(config) == {"TX": 1, "name": "a"} and config.TX == config.d("TX") == config["TX"] == 1
    assert "TX" in dir(config) and "TX" in config and repr(config) == "Config(TX=1, name='a')"
    with pytest.raises(AttributeError, match="no 'TY'; it has TX, name"):
        _ = config.TY
    with pytest.raises(spy.BindError, match="no 'TY'"):
        _ = config["TY"]
    assert [spy.cdiv(n, 32) for n in (0, 1, 32, 33)] == [0, 1, 1, 2]
    for bad in ((1, 0), (1.5, 2), ("1", 2)):
        with pytest.raises(spy.BindError, match="cdiv"):
            spy.cdiv(*bad)  # type: ignore[arg-type]


PROGRAM = """
import sys, json
import numpy as np
import slangpy_rt as spy
device = spy.Device(sys.argv[1])
module = spy.Module.load_from_source(device, "stored", "extern static const int K = 1;"
    "float f(float x) { float s = x; for (int i = 0; i < K * 2000; ++i) s = s * 0.5f + 0.25f; return s; }")
rows = module.f.constants({"K": [64, 1]}).timings(spy.Tensor.zeros(device, 4096))
print(json.dumps([[row.config.K, row.us] for row in rows]))
"""


@deep
@pytest.mark.one_device
def test_a_second_process_measures_nothing(backend_name: str, tmp_path: Path) -> None:
    def run(**settings: str) -> str:
        env = {**os.environ, "SLANGPY_RT_CACHE_DIR": str(tmp_path), **settings}
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, backend_name], env=env, capture_output=True, text=True, timeout=120
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert run(SLANGPY_RT_TUNE="off") == "[[64, null], [1, null]]\n"
    assert run(SLANGPY_RT_TUNE="cached") == "[[64, null], [1, null]]\n"
    first = run()
    assert first.startswith("[[1, ") and "null" not in first
    written = {e.key: e.created for e in DiskCache.open(tmp_path, 1 << 30).entries() if e.kind == "tuning"}
    assert len(written) == 2
    assert run() == run(SLANGPY_RT_TUNE="cached") == first
    entries = DiskCache.open(tmp_path, 1 << 30).entries()
    assert {e.key: e.created for e in entries if e.kind == "tuning"} == written
    run(SLANGPY_RT_TUNE="force")
    entries = DiskCache.open(tmp_path, 1 << 30).entries()
    assert all(e.created > written[e.key] for e in entries if e.kind == "tuning")


@deep
@pytest.mark.one_device
def test_one_of_several_processes_measures(backend_name: str, tmp_path: Path) -> None:
    env = {**os.environ, "SLANGPY_RT_CACHE_DIR": str(tmp_path), "SLANGPY_RT_DEBUG": "2"}
    command = [sys.executable, "-c", PROGRAM, backend_name]
    children = [
        subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    found = [child.communicate(timeout=180) for child in children]
    assert {out for out, _ in found} == {found[0][0]} and found[0][0].startswith("[[1, ")
    assert sum(text.count("f: measured 2 of 2 configurations") for _, text in found) == 1


def test_settings() -> None:
    assert CONFIG.tune == "on"
    env = {**os.environ, "SLANGPY_RT_TUNE": "maybe"}
    done = subprocess.run([sys.executable, "-c", "import slangpy_rt"], env=env, capture_output=True, text=True)
    assert done.returncode and "SLANGPY_RT_TUNE: expected one of on, cached, off, force" in done.stderr


def test_wrong_calls_of_tuned_functions_and_kernels_are_told(device: spy.Device) -> None:
    text = "import slangpy_rt;\nextern static const int K = 1;\nfloat f(float x) { return K * x; }\n"
    text += "[numthreads(4, 1, 1)] void run(uint3 at : SV_DispatchThreadID, RWTensor<float, 1> a) { a[at.x] = K; }"
    module = spy.Module.load_from_source(device, "tuned_wrong", text)
    f, run = module.f.constants({"K": [2, 3]}), module.run.constants({"K": [2, 3]})
    x = spy.Tensor.zeros(device, 4)
    huge = "a whole number of 16610 bits"
    with pytest.raises(spy.BindError, match=r"^f.dispatch: 'float f\(float x\)' returns a value"):
        f.dispatch(4, 1.0)
    with pytest.raises(spy.BindError, match=r"^run: this is a compute kernel; run it with run\.dispatch"):
        run(x)
    with pytest.raises(spy.BindError, match=rf"^run\.dispatch: threads is {huge}"):
        run.dispatch(10**5000, x)
    with pytest.raises(spy.BindError, match=rf"^f\.tune: budget is {huge}; a number of at least 0"):
        f.tune(budget=10**5000)
    with pytest.raises(spy.BindError, match=rf"^f\.tune: key returned {huge}"):
        f.tune(key=lambda call: 10**5000)(1.0)
    assert f.tune(key=lambda call: 1)(1.0) in (2.0, 3.0)


def test_a_config_is_a_mapping() -> None:
    config = spy.Config({"K": 2})
    assert (config.get("K"), config.get("nothing"), config.get("nothing", 7)) == (2, None, 7)
    assert "K" in config and [] not in config
    with pytest.raises(spy.BindError, match=r"^the configuration has no \[\]; it has K\.$"):
        config[[]]  # type: ignore[index]


@every_case
@pytest.mark.parametrize("given", ["both", "out", "in and out", "pair"])
def test_gradients_of_their_own_are_added_once(device: spy.Device, module: spy.Module, given: str) -> None:
    """A search runs each configuration many times; what is in the gradients afterwards is one call's."""
    cube = module.cube.constants({"STEPS": [1, 2, 3]})
    x = np.float32([1, 2, 3, 4])
    grad = spy.Tensor.full(device, 4, 10.0)
    t: Any = spy.Tensor.from_numpy(device, x)
    if given == "pair":
        t = spy.diff_pair(2.0, 10.0)
    elif given == "both":
        t = t.with_grads(grad, grad)
    else:
        t = t.with_grads(grad_in=spy.Tensor.zeros(device, 4) if given == "in and out" else None, grad_out=grad)
    result: Any = spy.diff_pair(None, 1.0) if given == "pair" else spy.Tensor.zeros(device, 4)
    if given != "pair":
        result = result.with_grads(grad_in=spy.Tensor.ones(device, 4))
    for n in (1, 2):
        cube.bwds(t, _result=result)
        if given == "pair":
            assert t.grad == 10 + n * 12
        else:
            np.testing.assert_array_equal(grad.to_numpy(), 10 + n * 3 * x * x)


@one_device
def test_sizes_that_share_a_configuration(device: spy.Device) -> None:
    """With ``key="pow2"`` sizes up to the same power of two do, and no others; 0 and 1 are kinds of their own."""
    policy = policy_of("f.tune", key="pow2")

    def kind(size: int, value: int = 3) -> str:
        info = CallInfo("f", {"x": (size, 3), "k": ()}, {"x": "float", "k": "int"}, {"k": value}, "", device.caps)
        return kind_of_call("f", policy, info, ())

    sizes = [0, 1, 2, 3, 4, 5, 7, 8, 9, 63, 64, 65, 127, 128, 129, 2**31 - 1, 2**31, 2**31 + 1]
    groups = [0, 1, 2, 4, 4, 8, 8, 8, 16, 64, 64, 128, 128, 128, 256, 2**31, 2**31, 2**32]
    for a, b in ((a, b) for a in range(len(sizes)) for b in range(len(sizes))):
        assert (kind(sizes[a]) == kind(sizes[b])) == (groups[a] == groups[b]), (sizes[a], sizes[b])
        assert (kind(5, sizes[a]) == kind(5, sizes[b])) == (groups[a] == groups[b]), (sizes[a], sizes[b])
