"""From the words of a kernel to LLVM IR: all passes in order, and the function that runs groups.

The text has one function that is seen from outside::

    void run(push, first, last, nx, ny, nz, past, bytes)

It runs the groups ``first`` to ``last`` of nx * ny * nz. ``push`` points to the kernel's push constants. A whole
vector that a thread stores once goes past the caches if it lies among the ``bytes`` from the address ``past`` on. The
function holds group memory and frames on its stack; kernels that need more than a thread's stack has are refused.
"""

from __future__ import annotations

from dataclasses import dataclass

from slangpy_rt.lanes.calls import Call, called_functions, parameter_shapes
from slangpy_rt.lanes.debug_text import DebugSettings, DebugText
from slangpy_rt.lanes.errors import UnsupportedKernel
from slangpy_rt.lanes.flow import tree_of
from slangpy_rt.lanes.functions import table
from slangpy_rt.lanes.inline import inlined, inlined_call
from slangpy_rt.lanes.liveness import liveness_of
from slangpy_rt.lanes.module import GROUP, Module, parse
from slangpy_rt.lanes.scopes import scoped
from slangpy_rt.lanes.text import SIZES
from slangpy_rt.lanes.uniform import analyzed
from slangpy_rt.lanes.variables import Variables, variables_of
from slangpy_rt.lanes.writer import Writer

# Lanes of a wave, as on NVIDIA GPUs and in SlangPy's kernels of 32 threads.
WAVE = 32
_LINE = 64
# Bytes of a launch of one thread. Threads of other libraries may have stacks of 2 MiB.
_MOST_STACK, _MOST_HEAP = 1 << 20, 64 << 20


@dataclass(frozen=True, slots=True)
class LaneFunction:
    """A function that kernels call (`calls`).

    Attributes
    ----------
    name : str
        The name under which it is called; functions of one name have the same text.
    """

    name: str
    module: Module
    call: Call
    width: int
    contract: bool

    def write(self) -> str:
        """Return LLVM IR."""
        shapes = tuple(parameter_shapes(self.module, self.call).values())
        body, ids, result = inlined_call(self.module, self.call.function)
        program = scoped(body, tree_of(body), barriers=False)
        variables, arguments = variables_of(program), dict(zip(ids, shapes, strict=True))
        if _array_bytes(variables) * self.width > _MOST_STACK:
            raise UnsupportedKernel(f"arrays of {_array_bytes(variables)} bytes in the variables of a function")
        facts = analyzed(program, variables, liveness_of(program, variables), self.width, given=arguments)
        writer = Writer(program, variables, facts, {}, self.width, self.contract)
        text = writer.write_function(self.name, arguments, result, self.call.uniform)
        return _joined(writer, [text])


@dataclass(frozen=True, slots=True)
class LaneKernel:
    """A translated kernel.

    Attributes
    ----------
    text : str
        LLVM IR.
    width : int
        Threads in the lanes of a vector.
    size : tuple of int
        Threads of a group.
    shared_bytes, frame_bytes : int
        Memory of a group; memory of its threads for arrays and across barriers.
    barriers : int
        How many barriers the function of W threads returns at.
    functions : tuple of LaneFunction
        What the text calls.
    """

    text: str
    width: int
    size: tuple[int, int, int]
    shared_bytes: int
    frame_bytes: int
    barriers: int
    functions: tuple[LaneFunction, ...] = ()


def translate(
    code: bytes, width: int | None = None, *, widest: int = 32, contract: bool = True,
    debug: DebugSettings | None = None,
) -> LaneKernel:  # fmt: skip
    """Translate a compute kernel.

    Parameters
    ----------
    code : bytes
        SPIR-V with one entry point.
    width : int, optional
        Threads in the lanes of a vector: 1, or a power of two, 4 to 32. It is also the number of lanes of a wave. By
        default it is `WAVE` for kernels that use waves, and otherwise the one that suits the group's size, or 1 for
        a debugger.
    widest : int
        The largest width that is chosen for a kernel without waves.
    contract : bool
        Whether a product and a sum may be rounded once, where SPIR-V allows it.
    debug : DebugSettings, optional
        Keep variables in memory and tell places and variables of the Slang text, if the module has them.

    Raises
    ------
    UnsupportedKernel
        If the kernel has something that the translation does not know.
    """
    module = parse(code)
    if width is None:
        width = WAVE if module.waves else 1 if debug else _width_for(module.size, widest)
    if width not in (1, 4, 8, 16, 32):
        raise ValueError(f"translate: expected a width of 1, 4, 8, 16 or 32, got {width}.")
    steps = -(-module.size[0] * module.size[1] * module.size[2] // width)
    called = called_functions(module) if debug is None else frozenset[int]()
    body = inlined(module, called)
    program = scoped(body, tree_of(body), barriers=steps > 1)
    variables = variables_of(program)
    shown, spread = _shown(module, debug, width), frozenset[int]()
    if shown and width > 1:
        spread = frozenset(variable for variable, _, _ in body.declared)
    facts = analyzed(program, variables, liveness_of(program, variables), width, spread)
    shared, end = {}, 0
    for id_, (type_, space, _) in module.variables.items():
        if space == GROUP:
            shared[id_] = end
            end += _rounded(module.nbytes(type_))
    framed = _array_bytes(variables) * width > _MOST_STACK
    writer = Writer(program, variables, facts, shared, width, contract, shown, framed=framed)
    step = writer.write()
    if shown and end + writer.leaves.frame_bytes * steps > _MOST_STACK:  # keep what is needed alone
        shown = _shown(module, debug, width)
        writer = Writer(program, variables, facts, shared, width, contract, shown, keeps=False, framed=framed)
        step = writer.write()
    # Without barriers W threads after the other use one frame.
    frame, frames = writer.leaves.frame_bytes, steps if writer.resumes else 1
    memory = end + frame * frames
    if memory > _MOST_HEAP:
        raise UnsupportedKernel(f"{memory} bytes of group memory, of arrays and of variables saved at barriers")
    run = _run(steps, end, frame * frames, bool(writer.resumes), memory > _MOST_STACK)
    text = _joined(writer, [step, run], shown.lines() if shown else "")
    functions = tuple(LaneFunction(name, module, call, width, contract) for call, name in writer.calls.items())
    return LaneKernel(text, width, module.size, end, frame * frames, len(writer.resumes), functions)


def _joined(writer: Writer, parts: list[str], end: str = "") -> str:
    """Return the text of a module with some functions."""
    tables = [table()] if writer.functions.table else []
    return "\n".join((*tables, *parts, *sorted(writer.text.declared), _ATTRIBUTES, *([end] if end else []), ""))


def _array_bytes(variables: Variables) -> int:
    """Return the bytes of the arrays of a thread, as if no two threads shared one."""
    return sum(SIZES[leaf.type] * leaf.count for leaf in variables.leaves.values() if leaf.count > 1)


def _shown(module: Module, debug: DebugSettings | None, width: int) -> DebugText | None:
    """Return what a debugger shows of a kernel, if it is for one and has debug information."""
    if debug is None or module.debug is None or module.entry not in module.debug.defined:
        return None
    return DebugText(module, module.debug, module.debug.defined[module.entry], debug, width)


def _width_for(size: tuple[int, int, int], widest: int) -> int:
    """Return the number of lanes for groups of a size.

    A row of a group is one line of whole vectors where the width divides it; otherwise its addresses are scattered.
    """
    x, y, z = size
    widths = [width for width in (32, 16, 8, 4) if width <= widest]
    if y == z == 1:
        return next((width for width in widths if width <= x), 4)
    rows = [width for width in widths if x % width == 0]
    whole = [width for width in widths if x * y * z % width == 0]
    return (rows or whole or [4])[0]


# ``run`` is not inlined: what calls it would have the whole kernel a second time.
_ATTRIBUTES = """attributes #0 = { nounwind alwaysinline "prefer-vector-width"="512" "min-legal-vector-width"="512" }
attributes #1 = { nounwind noinline "prefer-vector-width"="512" "min-legal-vector-width"="512" }
!0 = !{!"branch_weights", i32 2000, i32 1}
!1 = !{!"branch_weights", i32 1, i32 2000}
!2 = !{i32 1}"""


def _run(steps: int, shared: int, frames: int, barriers: bool, heap: bool) -> str:
    """Return the function that runs groups.

    With barriers, the threads of a group run in rounds: in each, every W threads run to their next barrier. Threads
    that have ended have state 0 and take no part in later rounds.
    """
    call = (
        "call i32 @step(ptr %push, i32 %x, i32 %y, i32 %z, i32 %n.x, i32 %n.y, i32 %n.z, i32 %s, ptr %shared, "
        "ptr %f, i32 %now, i64 %past, i64 %bytes)"
    )
    parameters = "ptr %push, i64 %first, i64 %last, i64 %nx, i64 %ny, i64 %nz, i64 %past, i64 %bytes"
    size = _rounded(max(_LINE, shared))
    memory = f"""  %shared = alloca [{size} x i8], align 64
  %frames = alloca [{max(_LINE, frames)} x i8], align 64
"""
    release, declared = "", ""
    if heap:
        memory = f"""  %taken = call ptr @malloc(i64 {_LINE + size + frames})
  %address = ptrtoint ptr %taken to i64
  %behind = and i64 %address, {_LINE - 1}
  %skip = sub i64 {_LINE}, %behind
  %shared = getelementptr i8, ptr %taken, i64 %skip
  %frames = getelementptr i8, ptr %shared, i64 {size}
"""
        release, declared = "  call void @free(ptr %taken)\n", "\ndeclare ptr @malloc(i64)\ndeclare void @free(ptr)"
    head = f"""define void @run({parameters}) #1 {{
entry:
{memory}  %states = alloca [{steps} x i32], align 64
  %n.x = trunc i64 %nx to i32
  %n.y = trunc i64 %ny to i32
  %n.z = trunc i64 %nz to i32
  br label %groups
groups:
  %g = phi i64 [ %first, %entry ], [ %g1, %next ]
  %more = icmp ult i64 %g, %last
  br i1 %more, label %group, label %end
group:
  %x64 = urem i64 %g, %nx
  %q = udiv i64 %g, %nx
  %y64 = urem i64 %q, %ny
  %z64 = udiv i64 %q, %ny
  %x = trunc i64 %x64 to i32
  %y = trunc i64 %y64 to i32
  %z = trunc i64 %z64 to i32
"""
    if not barriers:
        middle = f"""  br label %lanes
lanes:
  %s = phi i32 [ 0, %group ], [ %s1, %lanes ]
  %f = getelementptr i8, ptr %frames, i32 0
  %r = {call.replace("%now", "0")}
  %s1 = add i32 %s, 1
  %again = icmp ult i32 %s1, {steps}
  br i1 %again, label %lanes, label %next
"""
    else:
        middle = f"""  br label %round
round:
  %begin = phi i1 [ true, %group ], [ false, %after ]
  br label %lanes
lanes:
  %s = phi i32 [ 0, %round ], [ %s1, %done ]
  %waits = phi i32 [ 0, %round ], [ %waits1, %done ]
  %place = getelementptr i32, ptr %states, i32 %s
  %old = load i32, ptr %place
  %now = select i1 %begin, i32 0, i32 %old
  %ended = icmp eq i32 %now, 0
  %idle = select i1 %begin, i1 false, i1 %ended
  br i1 %idle, label %done, label %work
work:
  %at = mul i32 %s, {frames // steps}
  %f = getelementptr i8, ptr %frames, i32 %at
  %r = {call}
  store i32 %r, ptr %place
  br label %done
done:
  %state = phi i32 [ 0, %lanes ], [ %r, %work ]
  %waits1 = or i32 %waits, %state
  %s1 = add i32 %s, 1
  %again = icmp ult i32 %s1, {steps}
  br i1 %again, label %lanes, label %after
after:
  %over = icmp eq i32 %waits1, 0
  br i1 %over, label %next, label %round
"""
    # Later stores of this thread, such as that it is done, must not be seen before those past the caches.
    end = f"""next:
  %g1 = add i64 %g, 1
  br label %groups
end:
  %fenced = icmp eq i64 %bytes, 0
  br i1 %fenced, label %leave, label %fence
fence:
  fence seq_cst
  br label %leave
leave:
{release}  ret void
}}{declared}"""
    return head + middle + end


def _rounded(size: int) -> int:
    return -(-size // _LINE) * _LINE
