"""Writes ``docs/derivatives.md``: forms of functions whose derivatives were checked, with their state on each device.

    python codegen/tools/derivative_forms.py            # on every device that is here
    python codegen/tools/derivative_forms.py cuda       # on one device; the other columns stay

``tests/conformance/_derivative_forms.py`` lists the forms. The value of a call, ``bwds``, and the value and tangent
of ``fwds`` are compared with NumPy, derivatives with central differences.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "derivatives.md"
DEVICES = ("cpu", "vulkan", "cuda")
HEAD = """# Checked derivatives

Slang 2026.12, the compiler inside the slangpy wheel, computes some derivatives incorrectly without a message, and
crashes on others. This page lists the function forms that are known to be affected. "Right" means that the call,
`bwds` and `fwds` agree with NumPy and its central differences, because slangpy_rt
[adds statements](how-it-works.md#differentiable-functions) to the function before Slang reads it. "Refused" means
that a `CompileError` names the function and its line. `python codegen/tools/derivative_forms.py` writes this page;
the test suite checks each form, and random functions besides.

[`f.check_grads(...)`](gradients.md#checking-derivatives) checks a function of yours. A device with `debug=True`
checks each derivative once, when its kernel is made.

"""
_ROW = re.compile(r"^\| (.+?) \| `(.*)` \| (.*?) \|$", re.M)


def page(states: dict[tuple[str, str], dict[str, str]]) -> str:
    """Return the page's text.

    Parameters
    ----------
    states : dict
        By family and name of a form, the state on each device: ``"right"``, ``"refused"``, or empty without a run.
    """
    from tests.conformance._derivative_forms import FORMS

    lines = [HEAD.rstrip("\n")]
    family = ""
    families = list(dict.fromkeys(form.family for form in FORMS))
    for form in sorted(FORMS, key=lambda form: families.index(form.family)):
        if form.family != family:
            family = form.family
            titles = " | ".join(DEVICES)
            lines += ["", f"## {family}", "", f"| form | function | {titles} |", f"|---|---|{'---|' * len(DEVICES)}"]
        text = " ".join(form.text.replace("\\\n", " ").split()).replace("|", "\\|")
        found = states.get((form.family, form.name), {})
        cells = " | ".join(found.get(device) or "not run" for device in DEVICES)
        lines.append(f"| {form.name} | `{text}` | {cells} |")
    return "\n".join(lines) + "\n"


def read(text: str) -> dict[tuple[str, str], dict[str, str]]:
    """Return the states that a page has."""
    states: dict[tuple[str, str], dict[str, str]] = {}
    family = ""
    for line in text.splitlines():
        if line.startswith("## "):
            family = line[3:]
        elif match := _ROW.match(line):
            cells = match[3].split(" | ")
            states[family, match[1]] = {d: "" if s == "not run" else s for d, s in zip(DEVICES, cells, strict=True)}
    return states


def main(names: Sequence[str]) -> None:
    """Run the forms on devices, and write the page."""
    import slangpy_rt as spy
    from tests.conformance._derivative_forms import FORMS
    from tests.conformance.test_derivative_forms import compare

    states = read(PAGE.read_text("utf-8")) if PAGE.exists() else {}
    for name in names or [str(d.type) for d in spy.devices() if d.available and str(d.type) in DEVICES]:
        with spy.Device(name) as device:
            for form in FORMS:
                try:
                    compare(device, spy.Module.load_from_source(device, "form", form.text), form)
                    state = "right"
                except spy.CompileError as error:
                    state = "refused" if form.refused and form.refused in str(error) else "error"
                except AssertionError:
                    state = "WRONG"
                states.setdefault((form.family, form.name), {})[name] = state
                print(f"{name}: {form.family}, {form.name}: {state}", flush=True)
    PAGE.write_text(page(states), encoding="utf-8")


if __name__ == "__main__":
    sys.path[:0] = [str(ROOT)]
    main(sys.argv[1:])
