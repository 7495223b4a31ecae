"""The functions by which threads share a launch of groups, as LLVM IR. Nothing here compiles it.

``RUN_LIST`` in ``kernel.py`` has the same functions in C++. Here ``run_first`` takes the number of threads of a group
in place of ``coarse``. A piece has as many threads as a piece there has elements, and a chunk is at least one group.
"""

from __future__ import annotations

import sys
from string import Template

_POSIX = f"""
declare i32 @clock_gettime(i32, ptr)
define internal double @seconds() {{
  %time = alloca [2 x i64]
  %r = call i32 @clock_gettime(i32 {6 if sys.platform == "darwin" else 1}, ptr %time)
  %at = getelementptr i64, ptr %time, i64 1
  %s = load i64, ptr %time
  %n = load i64, ptr %at
  %whole = sitofp i64 %s to double
  %part = sitofp i64 %n to double
  %small = fmul double %part, 1.0e-9
  %sum = fadd double %whole, %small
  ret double %sum
}}
"""
_WINDOWS = """
declare i32 @QueryPerformanceCounter(ptr)
declare i32 @QueryPerformanceFrequency(ptr)
define internal double @seconds() {
  %count = alloca i64
  %each = alloca i64
  %r = call i32 @QueryPerformanceCounter(ptr %count)
  %q = call i32 @QueryPerformanceFrequency(ptr %each)
  %c = load i64, ptr %count
  %e = load i64, ptr %each
  %n = sitofp i64 %c to double
  %d = sitofp i64 %e to double
  %seconds = fdiv double %n, %d
  ret double %seconds
}
"""

_SHARED = (
    (_WINDOWS if sys.platform == "win32" else _POSIX)
    + """
%range = type { ptr, i64, ptr }
%work = type { ptr, ptr, i64, i64, i64, i64, i64, i64, ptr, ptr }
declare i64 @llvm.umin.i64(i64, i64)
declare i64 @llvm.umax.i64(i64, i64)
declare double @llvm.minnum.f64(double, double)

define void @run_list(ptr %ranges, i64 %count) {
entry:
  br label %head
head:
  %k = phi i64 [ 0, %entry ], [ %k1, %next ]
  %more = icmp slt i64 %k, %count
  br i1 %more, label %next, label %end
next:
  %run.at = getelementptr %range, ptr %ranges, i64 %k, i32 0
  %count.at = getelementptr %range, ptr %ranges, i64 %k, i32 1
  %args.at = getelementptr %range, ptr %ranges, i64 %k, i32 2
  %run = load ptr, ptr %run.at
  %n = load i64, ptr %count.at
  %args = load ptr, ptr %args.at
  call void %run(i64 0, i64 %n, ptr %args)
  %k1 = add i64 %k, 1
  br label %head
end:
  ret void
}

define i32 @run_first(ptr %work, ptr %run, i64 %end, ptr %args, i32 %threads) {
entry:
  %args.at = getelementptr %work, ptr %work, i32 0, i32 1
  %end.at = getelementptr %work, ptr %work, i32 0, i32 2
  store ptr %run, ptr %work
  store ptr %args, ptr %args.at
  store i64 %end, ptr %end.at
  %t = zext i32 %threads to i64
  %fit = udiv i64 $probe, %t
  %unit = call i64 @llvm.umax.i64(i64 %fit, i64 1)
  %fit.enough = udiv i64 $enough, %t
  %enough = call i64 @llvm.umax.i64(i64 %fit.enough, i64 1)
  br label %piece
piece:
  %first = phi i64 [ 0, %entry ], [ %last, %grow ]
  %size = phi i64 [ %unit, %entry ], [ %size4, %grow ]
  %past = add i64 %first, %size
  %last = call i64 @llvm.umin.i64(i64 %past, i64 %end)
  %begin = call double @seconds()
  call void %run(i64 %first, i64 %last, ptr %args)
  %now = call double @seconds()
  %seconds = fsub double %now, %begin
  %done = sub i64 %last, %first
  %left = sub i64 %end, %last
  %done.f = sitofp i64 %done to double
  %left.f = sitofp i64 %left to double
  %all = fmul double %left.f, %seconds
  %worth = fmul double %done.f, $worth
  %short = fcmp ole double %all, %worth
  br i1 %short, label %rest, label %long
rest:
  call void %run(i64 %last, i64 %end, ptr %args)
  ret i32 0
long:
  %slow = fcmp ogt double %seconds, $piece
  %known = icmp uge i64 %size, %enough
  %decided = or i1 %slow, %known
  br i1 %decided, label %share, label %grow
grow:
  %size4 = mul i64 %size, 4
  br label %piece
share:
  %shares.at = getelementptr %work, ptr %work, i32 0, i32 7
  %shares = load i64, ptr %shares.at
  %less = sub i64 %shares, 1
  %up = add i64 %left, %less
  %even = udiv i64 %up, %shares
  %even.f = sitofp i64 %even to double
  %each = fdiv double %done.f, %seconds
  %timed = fmul double %each, $chunk
  %most.f = call double @llvm.minnum.f64(double %timed, double %even.f)
  %most = fptosi double %most.f to i64
  %units = udiv i64 %most, %unit
  %slots = mul i64 %unit, $chunks
  %slots.less = sub i64 %slots, 1
  %up2 = add i64 %left, %slots.less
  %least = udiv i64 %up2, %slots
  %even.units = udiv i64 %even, %unit
  %fewest = call i64 @llvm.umin.i64(i64 %least, i64 %even.units)
  %more = call i64 @llvm.umax.i64(i64 %units, i64 %fewest)
  %whole = mul i64 %more, %unit
  %chunk = call i64 @llvm.umax.i64(i64 %whole, i64 %unit)
  %chunk.at = getelementptr %work, ptr %work, i32 0, i32 3
  %next.at = getelementptr %work, ptr %work, i32 0, i32 4
  %chunks.at = getelementptr %work, ptr %work, i32 0, i32 5
  %less1 = sub i64 %chunk, 1
  %up1 = add i64 %left, %less1
  %chunks = udiv i64 %up1, %chunk
  store i64 %chunk, ptr %chunk.at
  store i64 %last, ptr %next.at
  store i64 %chunks, ptr %chunks.at
  ret i32 1
}

define i32 @run_shared(ptr %work) {
entry:
  %args.at = getelementptr %work, ptr %work, i32 0, i32 1
  %end.at = getelementptr %work, ptr %work, i32 0, i32 2
  %chunk.at = getelementptr %work, ptr %work, i32 0, i32 3
  %next.at = getelementptr %work, ptr %work, i32 0, i32 4
  %chunks.at = getelementptr %work, ptr %work, i32 0, i32 5
  %finished.at = getelementptr %work, ptr %work, i32 0, i32 6
  %open.at = getelementptr %work, ptr %work, i32 0, i32 8
  %gate.at = getelementptr %work, ptr %work, i32 0, i32 9
  br label %head
head:
  %chunk = load i64, ptr %chunk.at
  %first = atomicrmw add ptr %next.at, i64 %chunk monotonic
  %end = load i64, ptr %end.at
  %over = icmp sge i64 %first, %end
  br i1 %over, label %leave, label %piece
piece:
  %past = add i64 %first, %chunk
  %last = call i64 @llvm.umin.i64(i64 %past, i64 %end)
  %run = load ptr, ptr %work
  %args = load ptr, ptr %args.at
  call void %run(i64 %first, i64 %last, ptr %args)
  %before = atomicrmw add ptr %finished.at, i64 1 acq_rel
  %finished = add i64 %before, 1
  %chunks = load i64, ptr %chunks.at
  %whole = icmp eq i64 %finished, %chunks
  br i1 %whole, label %open, label %head
open:
  %function = load ptr, ptr %open.at
  %gate = load ptr, ptr %gate.at
  call void %function(ptr %gate)
  br label %head
leave:
  ret i32 1
}
"""
)


def shared_text(probe: int, enough: int, chunks: int, piece: float, worth: float, chunk: float) -> str:
    """Return the text for launches that are divided in a certain way.

    Parameters
    ----------
    probe, enough : int
        Threads of the first piece that is timed, and the threads from which on a piece is large enough to decide.
    chunks : int
        The most chunks of a launch, if the threads need no more.
    piece, worth, chunk : float
        Seconds of a piece that is long enough to decide, of a launch that is worth sharing, and of a chunk.
    """
    seconds = {name: f"{value:.17e}" for name, value in (("piece", piece), ("worth", worth), ("chunk", chunk))}
    return Template(_SHARED).substitute(probe=probe, enough=enough, chunks=chunks, **seconds)
