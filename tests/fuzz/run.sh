#!/usr/bin/env bash
# Runs every fuzz target on its seed corpus and on mutations of it.
set -euo pipefail

usage() {
    cat <<'END'
tests/fuzz/run.sh [SECONDS] [BUILD_DIR] [TARGET...]

Runs each libFuzzer target (or those named, like fuzz_vocab) for SECONDS (default 5) from its seed corpus,
tests/fuzz/corpus/TARGET, and prints how many inputs it executed. New inputs go to BUILD_DIR/fuzz/corpus/TARGET, so that
a long run continues from the last one; inputs that make a target fail are kept in BUILD_DIR/fuzz/failures.
BUILD_DIR (default: build-fuzz) is made by: cmake --preset fuzz -G Ninja && cmake --build --preset fuzz --target fuzz
Exit code: 0 all targets passed, 1 one failed, 2 usage.
END
}

case "${1:-}" in -h | --help) usage && exit 0 ;; esac
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
seconds=${1:-5}
build=${2:-$here/../../build-fuzz}
[[ $seconds =~ ^[1-9][0-9]*$ ]] || { echo "run.sh: SECONDS is '$seconds'; expected a whole number from 1" >&2 && exit 2; }
[ -d "$build/fuzz" ] || { echo "run.sh: $build/fuzz is missing; build the target 'fuzz' of the preset 'fuzz'" >&2 && exit 2; }
build=$(cd -- "$build" && pwd)
targets=("${@:3}")
if [ ${#targets[@]} -eq 0 ]; then
    for source in "$here"/fuzz_*.c; do targets+=("$(basename -- "$source" .c)"); done
fi

# A crash writes its message to stderr; libFuzzer needs no symbolizer to be found, but it helps.
export ASAN_OPTIONS=${ASAN_OPTIONS:-allocator_may_return_null=1} # beside the defaults of tests/asan_options.c
mkdir -p "$build/fuzz/failures"

# shellcheck disable=SC2317 # in the background
# fuzz TARGET: prints its result, keeps its output in TARGET.log.
fuzz() {
    local target=$1 program=$build/fuzz/$1 grown=$build/fuzz/corpus/$1 log=$build/fuzz/$1.log outcome=passed process seeds corpora
    [ -x "$program" ] || { echo "$target: not built" && return 1; }
    mkdir -p "$grown"
    corpora=("$grown")
    for seeds in "$here/corpus/$target" "$here/corpus/${target#fuzz_}"; do
        if [ -d "$seeds" ]; then corpora+=("$seeds"); fi
    done
    [ ${#corpora[@]} -gt 1 ] || { echo "$target: no seed corpus in tests/fuzz/corpus/$target" && return 1; }
    "$program" -max_total_time="$seconds" -timeout=20 -rss_limit_mb=2048 -print_final_stats=1 -verbosity=1 \
        -artifact_prefix="$build/fuzz/failures/$target-" "${corpora[@]}" >"$log" 2>&1 &
    process=$!
    wait "$process" || outcome="FAILED: see $log"
    rm -f "/dev/shm/cairn-fuzz-$process.hdf5" # of an input in which it ended (fuzz_hdf5.c)
    [ "$outcome" = passed ] || tail -n 40 "$log"
    printf '%-20s %10s executions  %s\n' "$target" "$(executions "$target" '?')" "$outcome"
    [ "$outcome" = passed ]
}

executions() { # executions TARGET DEFAULT
    local runs
    runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$build/fuzz/$1.log" 2>/dev/null) || true
    echo "${runs:-$2}"
}

# One target per processor at a time.
failed=0 running=0
for target in "${targets[@]}"; do
    if [ "$running" -ge "$(nproc)" ]; then
        wait -n || failed=1
        running=$((running - 1))
    fi
    rm -f -- "$build/fuzz/$target.log"
    fuzz "$target" &
    running=$((running + 1))
done
while [ "$running" -gt 0 ]; do
    wait -n || failed=1
    running=$((running - 1))
done
total=0
for target in "${targets[@]}"; do total=$((total + $(executions "$target" 0))); done
printf '%-20s %10s executions\n' "all ${#targets[@]} targets" "$total"
exit "$failed"
