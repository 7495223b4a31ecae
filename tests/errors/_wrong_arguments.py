"""What a program may do wrong: every public callable, property and operator, with every kind of wrong argument.

``targets`` walks the package's public names; ``attempts`` puts each wrong value in each place of each of them, beside
arguments that are right. Nothing here is a test.
"""

from __future__ import annotations

import inspect
import operator
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import slangpy_rt as spy
from tests.nowhere import NOWHERE

SLANG = """
import slangpy_rt;
enum Kind { A, B = 5 }
struct P { float x; int n; float twice() { return 2 * x; } [mutating] void grow(float by) { x += by; } }
uniform float scale;
extern static const int count = 3;
float add(float a, float b) { return a + b; }
int pick(int a) { return 1; }
int pick(float a) { return 2; }
float3 turn(float3 v) { return v.zxy; }
float of_struct(P p) { return p.x + p.n; }
int of_kind(Kind k) { return int(k); }
float whole(Tensor<float, 1> t) { return t[0]; }
void write(out float x) { x = 1; }
[Differentiable] float square(float x) { return x * x * scale; }
[numthreads(4, 1, 1)]
void run(uint3 id : SV_DispatchThreadID, NDBuffer<float, 1> data, float value)
{
    if (id.x < data.shape[0]) data[id.x] = value;
}
"""


class Mine(Exception):
    """What the caller's own objects raise."""


class Raises:
    """An object whose every method raises."""

    def _raise(self, *_: Any, **__: Any) -> Any:
        raise Mine

    __repr__ = __str__ = __len__ = __iter__ = __getitem__ = __array__ = __index__ = __float__ = __int__ = _raise
    __bool__ = __fspath__ = __call__ = _raise


class Plain:
    """An object of no use."""


class Target(NamedTuple):
    """Something that can be called.

    Attributes
    ----------
    places : tuple of str
        Its parameters that may be given by position, or the names of its keywords.
    right : tuple
        Arguments that are right.
    """

    name: str
    call: Callable[..., Any]
    right: tuple[Any, ...]
    names: tuple[str, ...] = ()


def wrong_values(world: World) -> dict[str, Any]:
    """Values that nearly nothing takes, by name."""
    cyclic: list[Any] = []
    cyclic.append(cyclic)
    looped: dict[str, Any] = {}
    looped["x"] = looped
    deep: Any = []
    for _ in range(3000):
        deep = [deep]
    values: dict[str, Any] = {
        "None": None, "object": object(), "plain object": Plain(), "raising object": Raises(), "empty text": "",
        "text": "text", "surrogate": "\udc80", "NUL": "a\0b", "long text": "x" * 5000, "bytes": b"bytes",
        "huge": 2**70, "enormous": 10**5000, "negative": -3, "fraction": 0.5, "NaN": float("nan"),
        "infinity": float("inf"), "complex": 1j, "bool": True, "NumPy int": np.int64(3),
        "NumPy float": np.float32(0.5),
        "empty list": [], "cyclic list": cyclic, "cyclic dict": looped, "deep list": deep, "list of text": ["a", 1],
        "ragged": [[1, 2], [3]], "dict": {"a": 1}, "dict of ints": {1: 2}, "set": {1}, "tuple": (1, "a"),
        "type": int, "class": Plain, "lambda": lambda: 1, "generator": (x for x in ()), "module": np,
        "object array": np.array([None]), "text array": np.array(["a"]), "complex array": np.ones(2, complex),
        "date array": np.zeros(2, "M8[s]"), "empty array": np.zeros(0), "structured": np.zeros(2, [("q", "f4")]),
        "ellipsis": ..., "slice": slice(None), "exception": ValueError("x"), "path": Path(NOWHERE, "x"),
        "other device": world.other, "closed device": world.closed, "array of another": world.theirs,
        "array of a closed": world.gone, "function": world.module.add, "struct": world.module.P,
        "list of a closed": world.gone_commands, "device": world.device, "tensor": world.tensor,
    }  # fmt: skip
    return values


class World:
    """One object of each public class, on a device."""

    def __init__(self, device: spy.Device, other: spy.Device, folder: Path) -> None:
        self.device, self.other, self.folder = device, other, folder
        self.module = spy.Module.load_from_source(device, "wrong_arguments", SLANG)
        self.path = folder / "wrong_arguments.slang"
        self.path.write_text(SLANG, encoding="utf-8")
        self.tensor = spy.Tensor.zeros(device, (2, 3))
        self.line = spy.Tensor.zeros(device, 4)
        self.buffer = spy.NDBuffer(device, "float", (2, 3))
        self.pair = spy.NDDifferentiableBuffer(device, "float", (2, 3))
        self.theirs = spy.Tensor.zeros(other, (2, 3))
        self.closed = spy.Device("null")
        self.gone = spy.Tensor.zeros(self.closed, 3)
        self.gone_module = spy.Module.load_from_source(self.closed, "gone", SLANG)
        self.gone_commands = self.closed.command_list()
        self.gone_stream = self.closed.stream()
        self.gone_event = self.closed.event()
        self.gone_timer = self.closed.timer()
        self.closed.close()
        self.stream = device.stream()
        self.event = device.event().record()
        self.commands = device.command_list()
        self.timer = device.timer()
        self.profile = spy.profile(device)
        self.many = spy.InstanceList(self.module.P, {"x": 1.0, "n": 2})
        self.instances = spy.InstanceTensor(self.module.P, 2)
        self.tuned = self.module.add.constants({"count": [3, 4]})
        self.tuned_bwds = self.module.square.constants({"count": [3, 4]}).bwds
        text = SLANG.replace("[numthreads(4, 1, 1)]", "[numthreads(TX, 1, 1)]")
        self.tuned_kernel = spy.Module.load_from_source(device, "wrong_choices", text, defines={"TX": [2, 4]}).run
        self.textures: dict[str, Any] = {}
        if "textures" in device.caps.features:
            texture = spy.Texture.from_numpy(device, np.zeros((4, 4, 4), np.float32), mips=True)
            self.textures = {"Texture": texture, "Sampler": device.create_sampler()}
        self.config = spy.Config({"count": 3})
        self.parameter = spy.Tensor.zeros(device, 4).with_grads()
        self.optimizer = spy.optim.Adam([self.parameter])

    def objects(self) -> dict[str, Any]:
        """Them by name."""
        m = self.module
        return {
            "Device": self.device, "Module": m, "Function": m.add, "overloads": m.pick, "bwds": m.square.bwds,
            "Struct": m.P, "method": m.P.twice, "Kernel": m.run, "Tensor": self.tensor, "NDBuffer": self.buffer,
            "NDDifferentiableBuffer": self.pair, "Stream": self.stream, "Event": self.event, "Timer": self.timer,
            "CommandList": self.commands, "Profile": self.profile, "InstanceList": self.many,
            "InstanceTensor": self.instances, "ValueRef": spy.ValueRef(1), "DiffPair": spy.diff_pair(1.0, 1.0),
            "Tuned": self.tuned, "Tuned bwds": self.tuned_bwds, "Tuned kernel": self.tuned_kernel,
            "Config": self.config, "Optimizer": self.optimizer, **self.textures,
            "call_id": spy.call_id(), "grid": spy.grid((2, 3)), "float3": spy.float3(1), "closed Device": self.closed,
            "Tensor of a closed": self.gone, "Module of a closed": self.gone_module,
            "Function of a closed": self.gone_module.__dict__.get("add", m.add),
            "Stream of a closed": self.gone_stream, "Event of a closed": self.gone_event,
            "Timer of a closed": self.gone_timer, "CommandList of a closed": self.gone_commands,
        }  # fmt: skip

    def right(self, owner: str, name: str, parameter: str) -> Any:
        """An argument that is right, by the parameter's name."""
        if parameter == "stream":
            return self.stream if owner in ("Function", "overloads", "bwds", "method") else None
        given = {
            "device": self.device, "dtype": "float", "shape": (2, 3), "value": 1.0,
            "array": np.zeros((2, 3), np.float32),
            "path": self.path, "name": "add", "source": "float f(float x) { return x; }", "other": self.tensor,
            "key": 0, "struct": self.module.P, "function": self.module.add, "to": self.tensor, "later": self.event,
            "threads": 4, "commands": self.commands, "place": 0, "size": 64, "kind": "tensor", "type": "null",
            "values": {}, "data": {"x": 1.0, "n": 2}, "dims": -1, "dim": -1, "bounds": 3, "argv": ["--help"],
            "parameters": [self.parameter], "image": self.tensor, "format": "rgba32_float", "mip": 0, "layer": 0,
            "level": 0, "sampler": {}, "height": 2, "depth": None, "array_length": None, "usage": None,
        }  # fmt: skip
        if owner in ("Texture", "Sampler", "Device") and parameter in _OF_TEXTURES:
            return _OF_TEXTURES[parameter]
        if name == "save" or (name == "explain" and owner == "CommandList"):
            return self.folder / "out"
        return given.get(parameter, 1)


_OF_TEXTURES: dict[str, Any] = {
    "type": "2d", "source": np.zeros((4, 4, 4), np.float32), "filter": "linear", "wrap": "clamp", "border": "black",
}  # fmt: skip
# For the rest of the package, or the end of what others use.
# What numpy_async returns has to be awaited.
INTERNAL = {
    "numpy_async", "of", "forget", "source_changed", "recorded", "result_of", "launch", "close",
    "alloc", "alloc_shared", "upload", "download", "download_async", "clear", "replay",
    "open_shared", "relink", "queue_launch", "observe", "unobserve", "begin_order", "once", "show_printed",
    "host_array",
    "check_open", "forked", "moves", "folds", "number", "info", "check", "expression", "key", "scalars",
    "values", "defaults", "indexed", "used",
}  # fmt: skip
CLEARS = ("Tensor", "NDBuffer", "NDDifferentiableBuffer", "CommandList", "Tensor of a closed")
OPERATORS: dict[str, Callable[..., Any]] = {
    "[]": operator.getitem, "==": operator.eq, "hash": hash, "repr": repr, "str": str, "dir": dir, "bool": bool,
    "getattr": lambda x, name: getattr(x, name), "setattr": lambda x, name: setattr(x, name, 1), "len": len,
    "+": operator.add, "iter": lambda x: list(iter(x))[:1],
}  # fmt: skip


def targets(world: World) -> Iterator[Target]:
    """All that is public and can be called: functions, classes, methods, properties, operators."""
    for name in spy.__all__:
        thing = getattr(spy, name)
        if isinstance(thing, type) and issubclass(thing, (Exception, spy.DeviceType)):
            continue
        if name not in ("Struct", "Function", "Kernel", "Module", "Stream", "Event", "Timer", "CommandList"):
            yield from _callable(world, name, name, thing)
        if isinstance(thing, type):
            for member in _members(thing):
                found = getattr(thing, member, None)
                if inspect.ismethod(found):  # of the class
                    yield from _callable(world, name, f"{name}.{member}", found)
    for name in ("SGD", "Adam", "AdamW"):
        yield from _callable(world, "optim", f"optim.{name}", getattr(spy.optim, name))
    for name, thing in world.objects().items():
        for member in _members(type(thing)):
            if member in INTERNAL and not (member == "clear" and name in CLEARS):
                continue
            yield Target(f"{name}.{member} read", lambda t=thing, m=member: getattr(t, m), ())
            if isinstance(inspect.getattr_static(type(thing), member), property) or name.endswith("of a closed"):
                continue
            found = getattr(thing, member)
            if callable(found) and not inspect.ismethod(getattr(type(thing), member)):
                yield from _callable(world, name, f"{name}.{member}", found)
        if callable(thing) and not name.endswith("of a closed"):
            yield Target(f"{name}()", thing, _call(world, name))
        for sign, operation in OPERATORS.items():
            binary = sign in ("[]", "==", "getattr", "setattr", "+")
            yield Target(f"{name} {sign}", lambda *a, o=operation, t=thing: o(t, *a), (0,) if binary else ())


def _call(world: World, name: str) -> tuple[Any, ...]:
    known: dict[str, tuple[Any, ...]] = {
        "Kernel": (4, world.line, 1.0),
        "method": ({"x": 1.0, "n": 1},),
        "Struct": (1.0, 2),
        "Tuned kernel": (4, world.line, 1.0),
        "Tuned bwds": (spy.diff_pair(1.0),),
    }
    return known.get(name, (1.0,) if name in ("overloads", "bwds") else (1.0, 2.0))


def _members(kind: type) -> list[str]:
    return (
        [name for name in dir(kind) if not name.startswith("_")] if not issubclass(kind, np.ndarray) else ["x", "w"]
    )


def _callable(world: World, owner: str, name: str, thing: Any) -> Iterator[Target]:
    member = name.rpartition(".")[2]
    if member in INTERNAL and not (member == "clear" and owner in CLEARS):
        return
    try:
        parameters = list(inspect.signature(thing).parameters.values())
    except (TypeError, ValueError):
        return
    if member == "tune":
        yield from _searches(name, thing, _call(world, owner))
    calls = ("call", "bind", "source", "explain", "append_to", "dispatch", "construct", "best", "timings")
    if member in calls and owner in (
        "Function", "overloads", "bwds", "method", "Kernel", "InstanceTensor", "Tuned", "Tuned bwds", "Tuned kernel"
    ):  # fmt: skip
        right = _call(world, owner)
        if owner in ("Kernel", "Tuned kernel") and member == "call":
            right = right[1:]
        yield Target(name, thing, (world.device.command_list(), *right) if member == "append_to" else right)
        yield Target(
            f"{name} _result=", lambda *a: thing(*right, _result=a[0]) if member != "append_to" else None, (None,)
        )
        return
    right, names = [], []
    for p in parameters:
        if p.kind is p.VAR_KEYWORD:
            continue
        if p.kind is p.KEYWORD_ONLY or p.default is not p.empty:
            names.append(p.name)
        else:
            right.append(world.right(owner, member, p.name))
    yield Target(name, thing, tuple(right), tuple(names))


def _searches(name: str, tune: Callable[..., Any], right: tuple[Any, ...]) -> Iterator[Target]:
    """Calls that search with a parameter of ``tune``."""
    for parameter in ("configs", "key", "prune", "model", "top_k", "check", "budget", "bench"):

        def search(value: Any, parameter: str = parameter) -> Any:
            return tune(**{parameter: value}).timings(*right)

        yield Target(f"{name} {parameter}, searched", search, (None,))


def attempts(world: World) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Each wrong value in each place, and its name."""
    wrong = wrong_values(world)
    for target in targets(world):
        if not target.right and not target.names:
            yield target.name, target.call
        for place in range(len(target.right)):
            for label, value in wrong.items():
                args = (*target.right[:place], value, *target.right[place + 1 :])
                yield f"{target.name}, {label} in place {place}", lambda t=target, a=args: t.call(*a)
        for name in target.names:
            for label, value in wrong.items():
                yield (
                    f"{target.name}, {name}={label}",
                    lambda t=target, n=name, v=value: t.call(*t.right, **{n: v}),
                )


# Python's own words for a wrong number of arguments or a wrong name.
_COUNT = re.compile(r"positional argument|unexpected keyword|required keyword|multiple values|takes no arguments")
# What Python's protocols ask for.
PROTOCOLS: dict[str, tuple[type[Exception], ...]] = {
    "[]": (IndexError, TypeError), "len": (TypeError,), "iter": (TypeError,), "+": (TypeError, ValueError),
    "==": (TypeError, ValueError, DeprecationWarning),  # of NumPy's arrays, as is +
    "getattr": (AttributeError, TypeError), "setattr": (AttributeError, TypeError), "bool": (TypeError, ValueError),
}  # fmt: skip


def complaint(name: str, error: Exception) -> str:
    """What is wrong with an exception, or nothing."""
    text = str(error)
    sign = next((s for s in PROTOCOLS if f" {s}" in name), "")
    if re.search(r"0x[0-9a-f]{6}", text):
        return f"has an address: {text[:200]}"
    if isinstance(error, Mine):
        return ""
    if isinstance(error, spy.SlangPyRtError):
        # A compiler quotes the line.
        most = 12000 if isinstance(error, spy.CompileError) else 2500
        return "" if text.strip() and len(text) < most else f"says {len(text)} characters"
    # Of a parameter that upstream's loadModule has, and ours takes without effect; pytest makes warnings errors.
    if isinstance(error, UserWarning) and "skipSlang has no effect" in text:
        return ""
    # A class of Python's, given as a function of the configuration or of the call, raises what it raises.
    if isinstance(error, TypeError) and "Tuned" in name and ("type in place" in name or "=type" in name):
        return ""
    if isinstance(error, TypeError) and (_COUNT.search(text) or "keywords must be strings" in text):
        return ""
    if isinstance(error, AttributeError) and (" read" in name or "w" in name):
        return ""
    if sign and isinstance(error, PROTOCOLS[sign]):
        return ""
    # An array of NumPy's.
    if name.startswith("float3 ") and isinstance(error, (ValueError, OverflowError, TypeError)):
        return ""
    return f"{type(error).__name__}: {text[:160]}"
