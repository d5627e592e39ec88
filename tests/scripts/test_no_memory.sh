#!/usr/bin/env bash
# Single allocations of a short run fail, one in each run. Where the program itself asked, or a library in C++ whose
# exception nothing would catch, it ends with 76 and names the lack of memory in its last line. `test.sh deep` adds the
# library of shards, and prints how runs end there.
set -uo pipefail
# shellcheck source=tests/scripts/lib.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"

build=$(dirname -- "$CAIRN_BINARY")
preload=$build/tests/fakes/malloc.so
[ -e "$preload" ] || { echo "skipped: $preload is not built" && exit 77; }
if ldd "$CAIRN_BINARY" | grep -q libasan; then echo "skipped: the sanitizer has its own malloc" && exit 77; fi

# failing NUMBER COMMAND...: sets `code`, and `asked`, the file that asked for that allocation (or the count of all).
failing() {
    rm -rf out asked
    code=0 asked=
    env LD_PRELOAD="$preload" CAIRN_TEST_MALLOC="$1" CAIRN_TEST_MALLOC_LOG="$work/asked" timeout "$hang_limit" "${@:2}" \
        --output-dir out --snapshot-dir none --max-steps 2 --threads 1 >"$work/.stdout" 2>"$work/.stderr" </dev/null || code=$?
    if [ -e asked ]; then read -r asked <asked; fi
}

# sweep RUNS COMMAND...: RUNS allocations, and as many of the last tenth, where training is.
sweep() {
    local runs=$1 all i last refused=0 aborted=0
    declare -A ends=()
    shift
    failing 1000000000 "$@"
    all=$asked
    { [ "$code" -eq 0 ] && [ "${all:-0}" -gt 100 ]; } || { complain "code $code, $all allocations" && cat "$work/.stderr"; return; }
    for ((i = 0; i < 2 * runs; i++)); do
        if [ "$i" -lt "$runs" ]; then failing $((1 + i * all / runs)) "$@"; else failing $((all - (i - runs) * all / runs / 10)) "$@"; fi
        ends["$code $asked"]=$((${ends["$code $asked"]:-0} + 1))
        if [ "$code" -eq 76 ]; then refused=$((refused + 1)); fi
        if [ "$code" -eq 134 ]; then aborted=$((aborted + 1)); fi
        [ "$asked" = cairn ] || [[ $asked == cairn_* && $asked != cairn_cuda* ]] || continue
        last=$(tail -n 1 "$work/.stderr")
        case $code in
        0) ;; # the loader and the locale do without some
        76) [[ $last == error:*memory* ]] || complain "the last line is '$last'" ;;
        *) complain "code $code instead of 76: $last" ;;
        esac
    done
    [ "$aborted" -le $((runs / 20)) ] || complain "$aborted of $((2 * runs)) runs aborted"
    [ "$refused" -gt "$runs" ] || complain "only $refused runs ended with 76"
    for i in "${!ends[@]}"; do printf '%s %s: %d (code, asked by: runs)\n' "$1" "$i" "${ends[$i]}"; done
}

ulimit -c 0 # libraries crash
make_tiny_bert bert
glue=(glue --do-train --do-eval --model-config bert/config.json --vocab bert/vocab.txt --data-dir "$sample")
sweep "$(quick_or_deep 15 1000)" "$CAIRN_BINARY" "${glue[@]}" --backend ref
if [ -e "$build/cairn_cpu.so" ]; then sweep "$(quick_or_deep 4 1000)" "$CAIRN_BINARY" "${glue[@]}" --backend cpu; fi
if [ -n "${CAIRN_TEST_DEEP:-}" ]; then
    make_sample_text
    expect 0 "$CAIRN_BINARY" shards --input text --vocab vocab.txt --max-seq-length 64 --output-dir shards
    make_tiny_config tiny.json
    sweep 1000 "$CAIRN_BINARY" pretrain --do-train --model-config tiny.json --vocab vocab.txt --data-dir shards --backend cpu
fi
finish
