#!/usr/bin/env bash
# compute-sanitizer over the tests on CUDA: memcheck over all conformance tests, racecheck over those whose kernels
# use memory shared by a group, and both over a planted defect, which they have to find.
#   tests/gpu/sanitize.sh [memcheck|racecheck] [FILE...]
# COMPUTE_SANITIZER names the tool, PYTHON the interpreter, JOBS how many files run at a time (16), LOGS a folder for
# their output, SECONDS_A_FILE a limit (400). The exit status is 1 if there was a report, a failed test or no find.
#
# Driver errors that the backend handles are no reports (--report-api-errors no): a thread's first launch fails for
# want of a context and is made again, and tests ask for more memory than there is. The host's part of backtraces is
# left out: for it the tool keeps Python's frames, and what they refer to lives on.
set -uo pipefail
cd "$(dirname "$0")/../.."
export TOOL=${1:-memcheck} PYTHON=${PYTHON:-python3} LOGS=${LOGS:-$(mktemp -d)} LIMIT=${SECONDS_A_FILE:-400}
export FLAGS="--report-api-errors no --print-limit 20 --show-backtrace device" SANITIZER=${COMPUTE_SANITIZER:-compute-sanitizer}
export PYTHONPATH="$PWD:$PWD/codegen:$PWD/tests/gpu${PYTHONPATH:+:$PYTHONPATH}" PYTHONFAULTHANDLER=1
shift || true
mkdir -p "$LOGS"
"$SANITIZER" --version | tail -1

# The first makes an access outside of an array on purpose; the others compare times, which the tool changes.
tests=tests/conformance
OMITTED="--deselect $tests/test_mlp_layers.py::test_weights_that_are_too_small_are_noticed"
OMITTED+=" --deselect $tests/test_streams.py::test_timers_agree_with_the_clock"
OMITTED+=" --deselect $tests/test_profile.py::test_times"
# Threads that run one kernel each beside the others: the tool stops at them for minutes, and the kernels are others'.
[ "$TOOL" = racecheck ] &&
    OMITTED+=" --deselect $tests/test_gradient_calls.py::test_threads_with_arrays_of_their_own" &&
    OMITTED+=" --deselect $tests/test_matmul.py::test_threads"
export OMITTED

one() {
    name=$(basename "$1" .py)
    plugin="-p sanitized"
    # What this one tests is how blocks are cut.
    [ "$name" = test_cuda_backend ] && plugin=
    # These are about the slabs that arguments share.
    case $name in test_shared_memory | test_async) export SANITIZED_SHARED=1 ;; esac
    start=$SECONDS
    timeout "$LIMIT" "$SANITIZER" --tool "$TOOL" --error-exitcode 86 $FLAGS --target-processes application-only \
        --log-file "$LOGS/$name.$TOOL" \
        "$PYTHON" -m pytest -p no:cacheprovider -o addopts= $plugin $OMITTED "$1" --backend=cuda >"$LOGS/$name.txt" 2>&1
    status=$?
    echo "$name: status $status, $((SECONDS - start)) s, $(tail -1 "$LOGS/$name.txt" | tr -d =)" \
        "$(grep -h SUMMARY "$LOGS/$name.$TOOL" | sort | uniq -c | tr -s '= \n' ' ')"
    # 255 would stop the others.
    [ $status = 0 ]
}
export -f one

planted=write
[ "$TOOL" = racecheck ] && planted=race
"$SANITIZER" --tool "$TOOL" --error-exitcode 86 $FLAGS "$PYTHON" tests/gpu/planted.py $planted >"$LOGS/planted.$TOOL" 2>&1
if ! grep -qE "SUMMARY: [1-9]" "$LOGS/planted.$TOOL"; then
    echo "$TOOL does not find the planted defect"
    cat "$LOGS/planted.$TOOL"
    exit 1
fi
echo "planted: $(grep SUMMARY "$LOGS/planted.$TOOL")"

files=("$@")
if [ ${#files[@]} = 0 ]; then
    # The largest first, as the longest to run; without those whose programs run by themselves.
    files=($(ls -S $tests/test_*.py | grep -vE "vulkan_backend|exit|soak|interrupts|resources") tests/gpu/test_cuda_backend.py
        tests/gpu/test_two_gpus.py)
    # Sums over a group, column and row sums, whole networks, raw kernels with groupshared; without those that make
    # thousands of calls of kernels that the others have as well.
    [ "$TOOL" = racecheck ] && files=($(grep -lE "bwds|groupshared|scatterUniform|_mlp import" "${files[@]}" |
        grep -vE "threads|programs|streams|profile"))
fi
start=$SECONDS
printf '%s\n' "${files[@]}" | xargs -P "${JOBS:-16}" -I{} bash -c 'one {}'
status=$?
echo "$TOOL: ${#files[@]} files in $((SECONDS - start)) s, output in $LOGS"
grep -hE "^(FAILED|ERROR)" "$LOGS"/*.txt
[ $status = 0 ]
