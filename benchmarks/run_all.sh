#!/bin/sh
# Measures everything, one script after the other, and prints the tables last, so that they are what a
# terminal or a truncated log still shows. Arguments go to every script:
#   benchmarks/run_all.sh [--device cuda vulkan] [--quick] [--out DIR]
# PYTHON chooses the interpreter; the exit status is 1 when a script could not measure ours.
here=$(dirname "$0")
python=${PYTHON:-python3}
tables=$(mktemp -d)
status=0
export PYTHONPATH="$here/..:$here/../codegen${PYTHONPATH:+:$PYTHONPATH}"
for script in launch args transfer throughput layouts gradients batching pytorch slang_torch startup; do
    echo "== $script" >&2
    "$python" "$here/$script.py" "$@" >"$tables/$script" || status=1
done
for script in launch args transfer throughput layouts gradients batching pytorch slang_torch startup; do
    printf '\n== %s\n' "$script"
    cat "$tables/$script"
done
rm -r "$tables"
exit $status
