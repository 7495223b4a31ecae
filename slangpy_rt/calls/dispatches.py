"""Arguments of ``dispatch``: threads and uniforms by name, and the shape of the call that runs a plain function."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from slangpy_rt.core.checks import table, thread_counts
from slangpy_rt.core.errors import BindError
from slangpy_rt.core.types import FunctionSig
from slangpy_rt.core.wording import in_words


def taken(
    where: str, params: Collection[str], threads: Any, named: Mapping[str, Any]
) -> tuple[Any, dict[str, Any], Mapping[str, Any]]:
    """Take ``thread_count`` and ``vars`` out of the arguments by name, unless parameters have these names.

    Returns
    -------
    tuple
        The threads, the other arguments, and values of uniforms by name.

    Raises
    ------
    BindError
        If threads are given twice or not at all, or ``vars`` is no dict.
    """
    rest = dict(named)
    uniforms: Mapping[str, Any] = {}
    if "vars" in rest and "vars" not in params:
        uniforms = table(where, "vars", rest.pop("vars"))
    if "thread_count" in rest and "thread_count" not in params:
        count = rest.pop("thread_count")
        if threads is not None:
            raise BindError(f"{where}: threads was given twice, by position and as thread_count.")
        threads = count
    if threads is None:
        raise BindError(f"{where}: threads is missing; give the number of threads in x, y and z first.")
    return threads, rest, uniforms


def threads_as_shape(name: str, overloads: Sequence[FunctionSig], threads: Any) -> tuple[int, ...]:
    """Return the shape of the call that runs a plain function once a thread: z, y and x, as many as it counts.

    Raises
    ------
    BindError
        If the function has overloads, returns or writes something, or its first parameter cannot hold the index.
    """
    where = f"{name}.dispatch"
    if len(overloads) > 1:
        raise BindError(
            f"{where}: there are {len(overloads)} overloads; call one over a grid: {name}(spy.grid(...))."
        )
    sig = overloads[0]
    if sig.returns.kind != "void":
        raise BindError(f"{where}: '{sig}' returns a value, which a dispatch has no place for; call it: {name}(...).")
    for p in sig.params:
        if p.direction != "in":
            raise BindError(f"{where}: all threads would write to '{p.name}'; let it be an NDBuffer or a pointer.")
    index = sig.params[0].type if sig.params else None
    if index is None or index.scalar not in ("int", "uint") or index.kind not in ("scalar", "vector"):
        raise BindError(
            f"{where}: the first parameter of '{sig}' takes the thread's index, and has to be an int, a uint, or a "
            "vector of up to three of them."
        )
    rank = (index.shape or (1,))[0]
    counts = thread_counts(where, threads)
    if rank > 3 or any(n != 1 for n in counts[rank:]):
        raise BindError(
            f"{where}: threads is {in_words(threads)}; '{index.name} {sig.params[0].name}' counts {rank}."
        )
    return (*counts, 1, 1)[:rank][::-1]
