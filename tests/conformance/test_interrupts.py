"""KeyboardInterrupt at any moment, in every operation: no word, no wrong result, no work lost, no memory kept.

Each program runs in a process of its own, which counts its interrupts; by default a few seconds for each device, with
``--long`` until 10,000 came.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.depth import deep, is_deep, random_cases

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no timers that interrupt")

# What is interrupted, and what is right afterwards whether or not it was: arrays that nothing touched keep what they
# hold, and the same calls, made again without interrupts, give what NumPy gives.
PROGRAM = '''
import _thread, faulthandler, gc, os, random, signal, sys, threading, time
# The parent may ignore the signal, as nohup and some CI systems do.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGALRM, signal.default_int_handler)
import numpy as np
import slangpy_rt as spy

TEXT = """
float add(float a, float b) { return a + b; }
void grow(inout float x, float by) { x += by; }
float slow(float x) { for (int k = 0; k < 40; ++k) x = x * 1.5 - floor(x * 1.5); return x; }
[Differentiable] float mul(float a, float b) { return a * b; }
float4 look(Texture2D<float4> t, SamplerState s, float2 at) { return t.SampleLevel(s, at, 0); }
float4 invert(float4 x) { return 1 - x; }
float shown(float a) { if (a < 0) printf("never\\\\n"); return a; }
"""
chance = random.Random(SEED)
messages = []


def opened():
    return spy.Device(NAME, debug=VALIDATION)


def closed(device):
    messages.extend(getattr(device.backend, "messages", ()))
    device.close()


device = opened()
module = spy.Module.load_from_source(device, "interrupted", TEXT)
add, grow, mul = module.add, module.grow, module.mul
small, large = np.arange(100, dtype=np.float32), np.arange(300_000, dtype=np.float32)
huge = np.arange(1_500_000, dtype=np.float32)
texels = np.random.default_rng(0).random((8, 8, 4), np.float32)
x, y, z = (spy.Tensor.from_numpy(device, small) for _ in range(3))
many, out = spy.Tensor.from_numpy(device, large), spy.Tensor.zeros(device, 300_000)
most = spy.Tensor.from_numpy(device, huge)
kept = spy.Tensor.from_numpy(device, small)  # nothing writes to it
a, b = x.with_grads(), spy.Tensor.from_numpy(device, small).with_grads()
again = grow.bind(y, 1.0)
commands = device.command_list()
for _ in range(8):
    grow.append_to(commands, z, 1.0)
side = device.stream()


def launch():
    for _ in range(30):
        add(x, x, _result=out[:100])


def launch_large():
    add(many, 1.0, _result=out)
    module.slow(many, _result=out)


def bound():
    for _ in range(30):
        again()


def results():
    for k in range(8):
        add(x, float(k))
        add(many, 1.0)


def arrays():
    for n in (1, 100, 5000, 70_000, 300_000, random.randrange(1, 1000)):
        t = spy.Tensor.zeros(device, n)
        spy.NDBuffer(device, "float3", (n, 2))[::2]
        del t


def numbers():
    for _ in range(4):
        add(small, 1.0), add(large[:60_000], 1.0)


def numbers_large():
    add(large, 1.0)


def up():
    x.copy_from(small)
    y.copy_from(small)
    out.copy_from(large)


def up_large():
    most.copy_from(huge)


def down():
    x.to_numpy(), out.to_numpy()


def down_large():
    most.to_numpy()


def clears():
    for t in (x, y, out):
        t.clear()


def lists():
    for _ in range(5):
        commands.submit()


def lists_made():
    for n in (1, 3, 20):
        made = device.command_list()
        for _ in range(n):
            grow.append_to(made, y, 1.0)
        made.copy(x, y)
        made.clear(y)
        made.submit(), made.submit()


def lists_changed():
    commands.update(3, z, 1.0)
    commands.submit()


def derivatives():
    a.zero_grads() if hasattr(a, "zero_grads") else None
    mul.bwds(a, b, _result=spy.diff_pair(None, 1.0))


def streams():
    s = device.stream()
    grow.stream(s)(y, 1.0)
    add.stream(side)(x, y)
    s.wait(side)
    e = s.record()
    e.wait()
    e.synchronize()
    commands.submit(side)
    s.synchronize()


def events():
    e = device.event().record()
    add(x, 1.0)
    with device.timer() as timer:
        add(x, 1.0)
    assert timer.seconds >= 0
    e.done
    e.synchronize()


def waits():
    for _ in range(5):
        add(x, 1.0)
        device.synchronize()
        again()
        device.synchronize()
        assert add(1.0, 2.0) == 3.0


def prints():
    module.shown(x)
    device.synchronize()


def loads():
    own = spy.Module.load_from_source(device, f"own{random.randrange(3)}", TEXT)
    own.add(x, 1.0)
    own.mul(x, 2.0)


def devices():
    with opened() as other:
        own = spy.Module.load_from_source(other, "other", TEXT)
        assert (own.add(spy.Tensor.from_numpy(other, small), 1.0).to_numpy() == small + 1).all()
        messages.extend(getattr(other.backend, "messages", ()))


def devices_dropped():
    other = opened()
    own = spy.Module.load_from_source(other, "other", TEXT)
    own.add(spy.Tensor.from_numpy(other, small), 1.0)


def textures():
    if "textures" in device.caps.features:
        image = spy.Texture.from_numpy(device, texels, mips=True)
        turned = module.invert(image, _result="texture")
        module.look(turned, {"filter": "nearest", "wrap": random.choice(["clamp", "mirror"])}, [0.5, 0.5])
        turned.copy_from(image)
        turned.to_numpy()


def textures_right():
    if "textures" in device.caps.features:
        image = spy.Texture.from_numpy(device, texels)
        turned = module.invert(image, _result="texture")
        assert (turned.to_numpy() == 1 - texels).all() and (image.to_numpy() == texels).all()


def cycles():
    cycle = [spy.Tensor.zeros(device, 500), device.command_list(), device.event().record()]
    cycle.append(cycle)
    del cycle
    gc.collect(0)


def right():
    """All that was not interrupted is done, and everything works."""
    assert (kept.to_numpy() == small).all()
    found = out.to_numpy()
    for n in (100, 300_000):
        assert (out.to_numpy() == found).all()
    x.copy_from(small)
    many.copy_from(large)
    z.clear()
    for _ in range(3):
        grow(x, 2.0)
    commands.submit()
    add(many, 1.0, _result=out)
    assert (x.to_numpy() == small + 6).all()
    assert (z.to_numpy() == 8).all(), z.to_numpy()
    assert (out.to_numpy() == large + 1).all()
    assert (add(large, 2.0) == large + 2).all() and (add(small, 2.0) == small + 2).all()
    textures_right()
    y.copy_from(small)
    again()
    assert (y.to_numpy() == small + 1).all()


def whole(work):
    """A launch is made or is not: never in part."""
    grow(many, 1.0)
    found = many.to_numpy() - large
    assert (found == found[0]).all(), np.unique(found)


WORK = [launch, launch_large, bound, results, arrays, numbers, numbers_large, up, up_large, down, down_large, clears,
        lists, lists_made, lists_changed, derivatives, streams, events, waits, prints, loads, textures,
        cycles]
RARE = [devices, devices_dropped]
for work in WORK + RARE:
    work()
right()


def usage():
    gc.collect()
    device.synchronize()
    maps = sum(1 for _ in open("/proc/self/maps")) if os.path.exists("/proc/self/maps") else 0
    memory = 0
    if os.path.exists("/proc/self/statm"):
        memory = int(open("/proc/self/statm").read().split()[1]) * 4096
    return memory, maps, threading.active_count()


def interrupted(work, seconds):
    """Make calls, and be interrupted once; whether it came."""
    timer = threading.Timer(seconds, _thread.interrupt_main) if chance.random() < 0.2 else None
    try:
        if timer is not None:
            timer.start()
        else:
            signal.setitimer(signal.ITIMER_REAL, seconds)
        end = time.perf_counter() + 50 * seconds + 0.05
        while time.perf_counter() < end:
            work()
        signal.setitimer(signal.ITIMER_REAL, 0)
        if timer is not None:
            timer.join()
        # Another thread may still have the signal.
        time.sleep(1e-3)
    except KeyboardInterrupt:
        return True
    return False


def stormed(work, pause):
    """Make calls, each interrupted twice in a short while: the second often comes as the first is dealt with."""
    count, end = 0, time.perf_counter() + 0.1
    while time.perf_counter() < end:
        told = []
        # Two interrupts, and two places for them: none is left for the steps outside.
        try:
            try:
                _thread.start_new_thread(interrupt, (pause * chance.uniform(1, 1.5), told))
                signal.setitimer(signal.ITIMER_REAL, pause)
                stop = time.perf_counter() + 4 * pause
                while time.perf_counter() < stop or not told or signal.getitimer(signal.ITIMER_REAL)[0]:
                    work()
                time.sleep(1e-3)
            except KeyboardInterrupt:
                count += 1
                while not told or signal.getitimer(signal.ITIMER_REAL)[0]:
                    time.sleep(1e-4)
                time.sleep(1e-3)
        except KeyboardInterrupt:
            count += 1
    return count


def interrupt(pause, told):
    """Interrupt the main thread once, after a while."""
    time.sleep(pause)
    _thread.interrupt_main()
    told.append(True)


only = sys.argv[1:]
if only:
    WORK = [w for w in WORK + RARE if w.__name__ in only]
    RARE = []
count, until, turns, before = 0, time.perf_counter() + SECONDS, 0, None
while time.perf_counter() < until and (count < WANTED or turns < 2):
    for work in random.sample(WORK, len(WORK)) + (RARE if turns % 4 == 0 else []):
        if time.perf_counter() > until:
            break
        for _ in range(REPEATS):
            count += interrupted(work, chance.uniform(1e-5, 4e-4) * (20 if work in RARE else 1))
        if work not in RARE:
            count += stormed(work, chance.uniform(1e-5, 4e-4))
        right()
        if work is launch_large:
            many.copy_from(large)
            for _ in range(5):
                interrupted(lambda: grow(many, 1.0), chance.uniform(1e-5, 2e-3))
            whole(None)
            right()
    turns += 1
    if turns == 1:
        before = usage()
after = usage()
# Dropped devices are closed by threads of their own.
end = time.perf_counter() + 10
while before is not None and after[2] > before[2] and time.perf_counter() < end:
    time.sleep(0.05)
    after = usage()
queues = max(len(device.order.lanes), len(getattr(device.backend, "_queues", ())))
closed(device)
said = [m for m in messages if "Invalid source language operand" not in m]
assert not said, said[:5]
assert count >= LEAST, count
assert queues <= 6, (queues, "queues: interrupted streams kept theirs")
print(count, "interrupts in", turns, "turns:", before, after)
if before is not None:
    # slangpy keeps something of each device that was opened.
    theirs = NAME.startswith("rhi-")
    assert after[1] <= before[1] + (200 if theirs else 40), (before, after)
    if after[2] > before[2] + 1:
        faulthandler.dump_traceback(all_threads=True)
    assert after[2] <= before[2] + 1, (before, after, threading.enumerate())
    assert after[0] <= before[0] + ((500 if theirs else 100) << 20), (before, after)
'''


@deep
@random_cases
def test_interrupts_at_any_moment(backend_name: str, pytestconfig: pytest.Config) -> None:
    long: bool = pytestconfig.getoption("--long")
    facts = {
        "NAME": backend_name,
        "SEED": 7,
        "VALIDATION": bool(pytestconfig.getoption("--validation")) and backend_name == "vulkan",
        "SECONDS": 1500 if long else 7 if is_deep(pytestconfig) else 2,
        "WANTED": 10_000 if long else 1 << 30,
        "LEAST": 10_000 if long else 20,
        "REPEATS": 8 if long else 2,
    }
    text = "\n".join(f"{name} = {value!r}" for name, value in facts.items()) + PROGRAM
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", text],
        capture_output=True, text=True, timeout=1800 if long else 120, env=environment,
    )  # fmt: skip
    print(done.stdout)
    assert done.returncode == 0 and not done.stderr, done.stderr[-8000:]
