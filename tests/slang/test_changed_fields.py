"""Fields that mutating methods change: what the text tells, beside what the methods do to values on the CPU."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from _random_methods import RandomMethods

import slangpy_rt as spy
from slangpy_rt.slang.changed_fields import changed_fields
from slangpy_rt.slang.source import Source
from tests.depth import deep, sampled

HEAD = """
struct Inner { float u; float v; [mutating] void grow() { u += 1; v += 1; } float sum() { return u + v; } };
float twice(float x) { return 2 * x; }
void set_to(inout float x, float y) { x = y; }
void count_up(inout int x) { x += 1; }
void both(float x, out float y) { y = x; }
struct Base { float a; float b; [mutating] void base_step() { a += 1; } };
#define BUMP b += 1
struct S : IDifferentiable
{
    float a; float b; float2 w; float t[3]; Inner i; int n;
    [mutating] void set_b(float x) { b = x; }
    [mutating] void deep() { this.deeper(1); }
    [mutating] void deeper(float x) { t[1] = x; set_b(x); }
    [mutating] void own(inout float x) { x += 1; }
    void reads(float x) {}
    [mutating] void method() { BODY }
};
"""
ALL = "a b w t i n"
# What a body changes, and the body. Where the two differ, what may be changed is told behind it.
BODIES = {
    "": "float x = a + b * w.x; if (a == b || a <= b) x = t[n] - i.u; for (int k = 0; k < n; ++k) x += (a);",
    "a": "a = b;",
    "a b": "a += b; (b) *= 2;",
    "w": "w.x = a; w.yx = float2(b, a);",
    "t": "t[n] = a; float x = t[int(b)];",
    "i": "i.u = b; float x = i.sum();",
    "n": "n++; int k = -n;",
    "n a": "--n; ++a;",
    "b": "set_b(a);",
    "b t": "this.deep();",
    "a ": "this.a = max(b, w.y) + twice(b) + dot(w, w) + float2(a, b).x;",
    "a  ": "set_to(a, b); reads(b);",
    "b ": "both(a, b); both((a), this.b);",
    "a   ": "own(a);",
    "w ": "sincos(a, w.x, w.y);",
    "a b n": "for (int k = 0; k < 3; n += 1, k++) { a = t[k]; } ((b)) = 3; float a2 = n > 0 ? a : b;",
    "i ": "i.grow();",
    "a    ": "S other = { a, b, w, t, i, n }; other.b = 3; a = other.b;",
    "n ": "n <<= 1; n >>= 1; n = n << int(b) >> 0;",
    "a b ": "float x = n > 0 ? b : a; { a = x; } /* t[0] = 1; */ b = x; // w = 0",
    "b  ": "if (a > 3) b = 1; else if (a < 2) b = 5; while (b < 0) b = -b;",
    "n t": "count_up((int)n); set_to((float)(t[0]), b); float x = (float)n; if (a > 0) reads(b);",
    "a     ": "a = (float)b + (b) + twice((b));",
}
# Bodies from which the answer is that all fields may change.
UNCLEAR = [
    "BUMP;", "S other = this; a = other.b;", "float x = hidden(this);", "S s = {}; this = s;",
]  # fmt: skip
# The answer is larger than what changes, and never smaller.
LARGER = {
    "a i": "a = i.sum();",
    "a b": "float a = 1; a += b; b = a;",
    "b n": "b = clamp(a, b, 1.0) * Inner(b, a).u; InterlockedAdd(n, 1);",
}


def source(module: spy.Module) -> Source:
    return module._scope.source


def answer(module: spy.Module, struct: str = "S", method: str = "method") -> set[str]:
    return set(changed_fields(source(module), module[struct].slang_type, method))


def really_changed(module: spy.Module, method: str = "method") -> set[str]:
    """The fields that a call of a method changes, of random values."""
    rng = np.random.default_rng(0)
    before = np.zeros(64, spy.Tensor.zeros(module.device, 1, module.S).to_numpy().dtype)
    for name in before.dtype.names:
        field = before[name]
        for part in [field[n] for n in field.dtype.names or ()] or [field]:
            part[...] = rng.integers(1, 3, part.shape)
    values = spy.Tensor.from_numpy(module.device, before, dtype=module.S)
    module.S[method](values)
    after = values.to_numpy()
    return {name for name in before.dtype.names if not np.array_equal(before[name], after[name])}


@pytest.fixture(scope="module")
def device() -> spy.Device:
    return spy.create_device(type="cpu")


@sampled(8)
@pytest.mark.parametrize("fields", BODIES, ids=[f"{k}-{fields.strip()}" for k, fields in enumerate(BODIES)])
def test_what_bodies_change(device: spy.Device, fields: str) -> None:
    module = spy.Module.load_from_source(device, "changes", HEAD.replace("BODY", f"{BODIES[fields]}\n"))
    assert answer(module) == set(fields.split())
    assert really_changed(module) <= answer(module)


@sampled(3)
@pytest.mark.parametrize("fields", LARGER)
def test_what_bodies_may_change(device: spy.Device, fields: str) -> None:
    module = spy.Module.load_from_source(device, "changes", HEAD.replace("BODY", LARGER[fields]))
    assert answer(module) == set(fields.split())


@sampled(4)
@pytest.mark.parametrize("body", UNCLEAR)
def test_unclear_bodies(device: spy.Device, body: str) -> None:
    text = HEAD.replace("BODY", body).replace("struct S ", "float hidden(S s) { return s.a; }\nstruct S ")
    module = spy.Module.load_from_source(device, "changes", text)
    assert answer(module) == set(ALL.split())


def test_where_methods_come_from(device: spy.Device, tmp_path: Path) -> None:
    (tmp_path / "part.slang").write_text(
        "#ifndef STEP\n#define STEP y = 1\n#endif\npublic struct Far { public float x; public float y;\n"
        "  public [mutating] void go() { x = y; } public [mutating] void hidden() { STEP; } };\n"
    )
    (tmp_path / "whole.slang").write_text("""
    import part;
    struct Base { float a; float b; [mutating] void go() { a = b; } };
    struct Derived : Base { float c; [mutating] void more() { go(); c = 1; } };
    namespace deep { struct Q { float a; float b; [mutating] void go() { b = a; } }; }
    struct G<T> { T a; T b; [mutating] void go() { b = a; } };
    extension Base { [mutating] void far() { b = a; } };
    """)
    module = spy.Module.load_from_file(device, tmp_path / "whole.slang")
    # Methods of the name in all structs are taken together, if the struct may inherit one.
    assert answer(module, "Derived", "go") == {"a", "b"} and answer(module, "Derived", "more") == {"a", "b", "c"}
    assert answer(module, "Base", "far") == {"b"} and answer(module, "Base", "go") == {"a"}
    assert answer(module, "deep.Q", "go") == {"b"} and answer(module, "G<float>", "go") == {"b"}
    assert answer(module, "Far", "go") == {"x"} and answer(module, "Far", "hidden") == {"x", "y"}
    assert answer(module, "Far", "nowhere") == {"x", "y"}


@deep
@pytest.mark.parametrize("seed", range(6))
def test_random_bodies(device: spy.Device, seed: int) -> None:
    module = RandomMethods(seed, 20).load(device)
    for k in range(20):
        found = answer(module, "S", f"m{k}")
        assert really_changed(module, f"m{k}") <= found, k
