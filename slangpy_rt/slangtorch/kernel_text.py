"""The Slang text of a kernel: a module's own text, followed by an entry point that calls one of its functions.

The entry point is in the module itself, because other modules can use only ``public`` declarations as soon as the
module declares anything ``public``. No text is compiled here.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Collection, Sequence
from typing import NamedTuple

from slangpy_rt.core.errors import UnsupportedError
from slangpy_rt.core.target import Target
from slangpy_rt.core.types import LayoutField, Param
from slangpy_rt.slang.corrections.rebinding import rebound
from slangpy_rt.slang.shader_modules import SLANGTORCH_HEAD, needs_library
from slangpy_rt.slang.text import blank, prepare
from slangpy_rt.slangtorch.parameter import Member, Parameter

Defines = Sequence[tuple[str, str]]

# Slang itself has these names, but for CUDA and for C++ with PyTorch only.
MACROS: tuple[tuple[str, str], ...] = (
    *((name, f"_spy_{name}") for name in ("TensorView", "DiffTensorView", "TorchTensor", "AtomicAdd")),
    *((name, f"_spy_{name}") for name in ("IDiffTensorWrapper", "CudaKernel", "AutoPyBindCUDA", "TorchEntryPoint")),
    *((name, f"_spy_{name}") for name in ("CudaDeviceExport", "CudaHost")),
    ("CUDAKernel", "_spy_CudaKernel"),
    ("CUDAHost", "_spy_CudaHost"),
    ("CUDADeviceExport", "_spy_CudaDeviceExport"),
    ("syncTorchCudaStream", "_spy_syncTorchCudaStream"),
    ("cudaThreadIdx", "_spy_threadIdxHere"),
    ("cudaBlockIdx", "_spy_blockIdxHere"),
    ("cudaBlockDim", "_spy_blockDimHere"),
)
_PY_EXPORT = re.compile(r'PyExport\s*\(\s*"([A-Za-z_]\w*)"\s*\)[^;{}]*?\bstruct\s+(\w+)')
_BLOCKS = {
    "value": ("uniform _spy_Call _spy_call", ""),
    "pointer": ("uniform _spy_Call *_spy_block", "    _spy_Call _spy_call = _spy_block[0];\n"),
}
# The first members of a range's block: its grid and the size of its thread groups.
_GEOMETRY = (Member("uint", 3, "I"), Member("uint", 3, "I"))
# The last member of a block whose kernel checks accesses.
_DIAGNOSTICS = Member("uint64_t", 0, "Q")
MAX_THREADS = 1024
_SIZES = {"i": 4, "I": 4, "f": 4, "q": 8, "Q": 8, "d": 8}


class KernelText(NamedTuple):
    """A kernel's text, and the offsets that the members of its argument block have to have."""

    text: str
    layout: tuple[LayoutField, ...]


def kernel_text(
    path: str,
    source: str,
    others: Sequence[str],
    defines: Defines,
    function: str,
    params: Sequence[tuple[Param, Parameter]],
    derivative: str,
    target: Target,
    group: tuple[int, int, int] | None,
    hidden: Collection[str] = (),
    prelude: str = "",
    checks: bool = False,
) -> KernelText:
    """Write the kernel that runs a function once a thread.

    Parameters
    ----------
    path, source : str
        The module's file, for diagnostics, and its text.
    others : sequence of str
        The texts of the files that it is made of besides.
    defines : sequence of (str, str)
        The session's macros. Kernels begin without them, and this one needs them again.
    function : str
        The function's qualified name.
    params : sequence of (Param, Parameter)
        The function's parameters.
    derivative : str
        ``"forward"``, ``"backward"`` or empty.
    target : Target
        The target that the text is for.
    group : tuple of int or None
        Threads of a group; None for groups of any size. For a range they are in the block.
    hidden : collection of str
        Names of Slang's that the module, or one that it imports, declares.
    prelude : str
        Lines at the beginning of the kernel's CUDA text.
    checks : bool
        Whether accesses of views are checked; the last member of the block is the address of the device's diagnostics
        then.

    Raises
    ------
    UnsupportedError
        If a name of Slang's that the kernel needs is among ``hidden``.
    """
    entry = target.entry
    members = [*(_GEOMETRY if entry == "range" else ()), *(m for _, p in params for m in p.members)]
    members += [_DIAGNOSTICS] if checks else []
    names = [f"_spy_m{k}" for k in range(len(members))]
    values = iter(names[len(_GEOMETRY) if entry == "range" else 0 :])
    declared, made, arguments = "", f"    _spy_reportTo(_spy_call.{names[-1]});\n" if checks else "", []
    for k, (_, parameter) in enumerate(params):
        name = f"_spy_a{k}"
        declared += f"    {parameter.type_name} {name};\n"
        made += "".join(f"    {line}\n" for line in parameter.assign(name, (f"_spy_call.{v}" for v in values)))
        arguments.append(name)
    pairs = ""
    for k, (param, parameter) in enumerate(params):
        if derivative and parameter.differentiable and not param.no_diff:
            # A backward derivative writes to its pairs.
            keyword = "var" if derivative == "backward" else "let"
            pairs += f"    {keyword} _spy_p{k} = _spy_diffPair({arguments[k]});\n"
            arguments[k] = f"_spy_p{k}"
    called = {"": function, "forward": f"fwd_diff({function})", "backward": f"bwd_diff({function})"}[derivative]
    run = f"{pairs}    {called}({', '.join(arguments)});\n"
    if prelude:
        quoted = prelude.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        made += (
            "    __target_switch\n    {\n    case cuda:\n"
            f'        __requirePrelude("{quoted}");\n        break;\n    default:\n        break;\n    }}\n'
        )
    body = (
        _range(declared + made, run)
        if entry == "range"
        else _threads(declared + made, run, _BLOCKS[entry] if members else ("", ""), group)
    )
    constants = target.constants + (target.backward_constants if derivative == "backward" else ())
    constants += ("export static const bool _spy_checks = true;",) if checks else ()
    ours = f"{block_struct(members, names)}\n{body}"
    check_words(function, ours, hidden)
    text = module_text(path, source, others, defines, target.format, constants)
    return KernelText(text + ours, layout(members, names))


def _threads(arguments: str, run: str, block: tuple[str, str], group: tuple[int, int, int] | None) -> str:
    parameter, fetch = block
    if group is None:
        # Such a device's kernels read its own ids, as CUDA's do.
        return (
            f'[shader("compute")]\n[numthreads({MAX_THREADS}, 1, 1)]\nvoid _spy_kernel({parameter})\n{{\n'
            f"{fetch}{arguments}{run}}}\n"
        )
    ids = ", ".join(filter(None, ("uint3 _spy_local : SV_GroupThreadID", "uint3 _spy_group : SV_GroupID", parameter)))
    sizes = ", ".join(map(str, group))
    return (
        f'[shader("compute")]\n[numthreads({sizes})]\n'
        f"void _spy_kernel({ids})\n{{\n"
        f"{fetch}    _spy_threadIdx = _spy_local;\n    _spy_blockIdx = _spy_group;\n"
        f"    _spy_blockDim = uint3({sizes});\n{arguments}{run}}}\n"
    )


def _range(arguments: str, run: str) -> str:
    return (
        "void _spy_element(_spy_Call _spy_call, uint3 _spy_thread, uint3 _spy_group, uint3 _spy_size)\n{\n"
        "    _spy_threadIdx = _spy_thread;\n    _spy_blockIdx = _spy_group;\n    _spy_blockDim = _spy_size;\n"
        f"{arguments}{run}}}\n\n"
        "export __extern_cpp void _spy_run(int64_t _spy_begin, int64_t _spy_end, _spy_Call *_spy_block)\n{\n"
        "    _spy_Call _spy_call = _spy_block[0];\n"
        "    uint3 _spy_grid = uint3(_spy_call._spy_m0[0], _spy_call._spy_m0[1], _spy_call._spy_m0[2]);\n"
        "    uint3 _spy_size = uint3(_spy_call._spy_m1[0], _spy_call._spy_m1[1], _spy_call._spy_m1[2]);\n"
        "    int64_t _spy_threads = int64_t(_spy_size.x) * _spy_size.y * _spy_size.z;\n"
        "    for (int64_t _spy_i = _spy_begin; _spy_i < _spy_end; ++_spy_i)\n    {\n"
        "        uint _spy_at = uint(_spy_i % _spy_threads);\n"
        "        uint64_t _spy_of = uint64_t(_spy_i / _spy_threads);\n"
        "        uint3 _spy_thread = uint3(\n"
        "            _spy_at % _spy_size.x, _spy_at / _spy_size.x % _spy_size.y,\n"
        "            _spy_at / _spy_size.x / _spy_size.y);\n"
        "        uint3 _spy_group = uint3(\n"
        "            uint(_spy_of % _spy_grid.x), uint(_spy_of / _spy_grid.x % _spy_grid.y),\n"
        "            uint(_spy_of / _spy_grid.x / _spy_grid.y));\n"
        "        _spy_element(_spy_call, _spy_thread, _spy_group, _spy_size);\n    }\n}\n"
    )


def module_text(
    path: str,
    source: str,
    others: Sequence[str],
    defines: Defines,
    form: str,
    constants: Sequence[str],
    head: str = SLANGTORCH_HEAD,
) -> str:
    """Return a module's text after the macros of a head and of the session, followed by imports and constants.

    ``form`` is the format of the target's code.
    """
    text = rebound(prepare(source, form).text, others)
    macros = "".join(f"#define {name} {value}\n" for name, value in defines)
    ours = "import slangtorch;\n" + ("import slangpy_rt;\n" if needs_library(source, form) else "")
    lines = "".join(f"{line}\n" for line in constants)
    return f'{head}{macros}#line 1 "{path}"\n{text}\n\n{ours}{lines}\n'


def struct_names(text: str) -> dict[str, str]:
    """Return the names that ``[PyExport("Name")]`` gives to structs of a text, by the structs' own names.

    Slang's reflection does not show this attribute.
    """
    code = blank(text) if "PyExport" in text else ""
    return {m[2]: m[1] for m in _PY_EXPORT.finditer(text) if code[m.start() : m.start() + 8] == "PyExport"}


def check_words(where: str, text: str, hidden: Collection[str]) -> None:
    """Refuse a module that declares a name of Slang's which the generated text needs.

    Raises
    ------
    UnsupportedError
        If it does.
    """
    lost = [name for name in hidden if re.search(rf"\b{name}\b", text)]
    if lost:
        raise UnsupportedError(
            f"{where}: a file of the module declares '{lost[0]}', a name of Slang's that the kernel needs; give it "
            "another name."
        )


def block_struct(members: Sequence[Member], names: Sequence[str]) -> str:
    """Return the declaration of the argument block; there is none without members."""
    block = "".join(f"    {_declared(m, n)};\n" for m, n in zip(members, names, strict=True))
    return f"struct _spy_Call\n{{\n{block}}}\n" if members else ""


def argument_format(target: Target, params: Sequence[Parameter], checks: bool = False) -> str:
    """Return the ``struct`` format of a kernel's argument block, in native alignment."""
    geometry = "6I" if target.entry == "range" else ""
    return f"@{geometry}{''.join(code for p in params for code in p.codes)}{_DIAGNOSTICS.code if checks else ''}"


def address_offsets(target: Target, params: Sequence[Parameter]) -> list[tuple[int, int, int]]:
    """Return, for the address of each tensor in the block, the parameter's index, the value's and the offset."""
    found, code, count = [], argument_format(target, ()), 0
    for k, parameter in enumerate(params):
        for at, each in enumerate(parameter.codes):
            if at in parameter.addresses:
                # "0Q" is the padding in front of an address.
                found.append((k, count + at, struct.calcsize(f"{code}0Q")))
            code += each
        count += len(parameter.codes)
    return found


def _declared(member: Member, name: str) -> str:
    return f"{member.storage} {name}[{member.repeat}]" if member.repeat else f"{member.storage} {name}"


def layout(members: Sequence[Member], names: Sequence[str]) -> tuple[LayoutField, ...]:
    """Return the offsets and sizes that the members of the argument block have to have."""
    found, at = [], 0
    for member, name in zip(members, names, strict=True):
        size = _SIZES[member.code]
        at = -(-at // size) * size
        total = size * (member.repeat or 1)
        found.append(LayoutField(name, at, total))
        at += total
    return tuple(found)
