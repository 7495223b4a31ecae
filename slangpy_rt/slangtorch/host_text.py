"""The Slang text of a host function: the module's own, in which launches are written to a log instead of run.

``shaders/torch_host.slang`` writes the log's entries for allocations and fills. No text is compiled here.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from slangpy_rt.core.target import Target
from slangpy_rt.slangtorch.kernel_text import Defines, KernelText, block_struct, check_words, layout, module_text
from slangpy_rt.slangtorch.parameter import Member, Parameter

# The log's address, its capacity in words, and the number of tensors among the arguments; then the arguments.
HEAD_CODES = "QII"
_LOG = (Member("uint64_t", 0, "Q"), Member("uint", 0, "I"), Member("uint", 0, "I"))
# By how many bits a handle in the place of an address is shifted: ``_spy_handleAt``.
HANDLE_AT = 40
ALLOC, FILL, SYNC, RESULT, ELSEWHERE, TOO_MANY, LAUNCH = 1, 2, 3, 4, 5, 6, 16
_IS_HOST = "export static const bool _spy_host = true;"
_ENTRIES = {
    "range": "export __extern_cpp void _spy_run(int64_t _spy_begin, int64_t _spy_end, _spy_Call *_spy_block)",
    "pointer": '[shader("compute")]\n[numthreads(1, 1, 1)]\nvoid _spy_kernel(uniform _spy_Call *_spy_block)',
    "value": '[shader("compute")]\n[numthreads(1, 1, 1)]\nvoid _spy_kernel(uniform _spy_Call _spy_call)',
}


def host_text(
    path: str,
    source: str,
    others: Sequence[str],
    defines: Defines,
    function: str,
    params: Sequence[Parameter],
    result: Parameter | None,
    kernels: Sequence[tuple[str, Sequence[Parameter]]],
    target: Target,
    hidden: Collection[str],
) -> KernelText:
    """Write the kernel that runs a host function once and leaves its log in memory.

    Parameters
    ----------
    path, source, others, defines
        As for ``kernel_text``.
    function : str
        The host function's qualified name.
    params, result
        The parameters and the result; None for no result.
    kernels : sequence of (str, sequence of Parameter)
        The kernels that it may launch; ``LAUNCH`` plus a kernel's index here is its number in the log.
    target : Target
        The target that the text is for.
    hidden
        As for ``kernel_text``.

    Raises
    ------
    UnsupportedError
        As ``kernel_text`` does.
    """
    entry = target.entry
    members = [*_LOG, *(m for p in params for m in p.members)]
    names = [f"_spy_m{k}" for k in range(len(members))]
    values = iter(names[len(_LOG) :])
    launches = "".join(_launch(LAUNCH + k, name, taken) for k, (name, taken) in enumerate(kernels))
    body = "" if entry == "value" else "    _spy_Call _spy_call = _spy_block[0];\n"
    body += "    _spy_log = (uint *)_spy_call._spy_m0;\n    _spy_logRoom = _spy_call._spy_m1;\n"
    body += "    _spy_logged = 1;\n    _spy_tensors = _spy_call._spy_m2;\n"
    for k, parameter in enumerate(params):
        body += f"    {parameter.type_name} _spy_a{k};\n"
        lines = parameter.assign(f"_spy_a{k}", (f"_spy_call.{v}" for v in values))
        body += "".join(f"    {line}\n" for line in lines)
    call = f"{function}({', '.join(f'_spy_a{k}' for k in range(len(params)))})"
    if result is None:
        body += f"    {call};\n"
    else:
        body += f"    {result.type_name} _spy_result = {call};\n    _spy_put(uint({RESULT}));\n"
        body += "".join(f"    _spy_put({text});\n" for text in result.read("_spy_result"))
    body += "    _spy_log[0] = _spy_logged;\n"
    # ``##`` joins the kernel's name to that of its struct: each kernel has one.
    macro = "#define __dispatch_kernel(_spy_k, _spy_g, _spy_b) _spy_Launch_##_spy_k(_spy_g, _spy_b)\n"
    ours = f"{launches}{block_struct(members, names)}\n{_ENTRIES[entry]}\n{{\n{body}}}\n"
    check_words(function, ours, hidden)
    text = module_text(path, source, others, defines, target.format, (*target.constants, _IS_HOST), macro)
    return KernelText(text + ours, layout(members, names))


def _launch(number: int, name: str, params: Sequence[Parameter]) -> str:
    """Return the struct that replaces a kernel in ``__dispatch_kernel(kernel, grid, block)(arguments)``."""
    taken = ", ".join(f"{p.type_name} _spy_x{k}" for k, p in enumerate(params))
    puts = "".join(f"        _spy_put({text});\n" for k, p in enumerate(params) for text in p.read(f"_spy_x{k}"))
    sizes = "".join(f"        _spy_put(_spy_{what}.{axis});\n" for what in ("grid", "block") for axis in "xyz")
    return (
        f"struct _spy_Launch_{name.replace('.', '_')}\n{{\n    uint3 _spy_grid;\n    uint3 _spy_block;\n"
        "    __init(uint3 _spy_g, uint3 _spy_b)\n    {\n"
        "        _spy_grid = _spy_g;\n        _spy_block = _spy_b;\n    }\n"
        f"    void operator()({taken})\n    {{\n        _spy_put(uint({number}));\n{sizes}{puts}    }}\n}}\n"
    )
