#!/usr/bin/env bash
# Single allocations and mappings of short runs fail, one in each run. The run ends with 76 and names the lack of memory,
# whether the program asked or a library, or it does without and has the same results. `test.sh deep` tries every mapping,
# more allocations and more commands, and prints how runs end.
set -uo pipefail
# shellcheck source=tests/scripts/lib.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"

build=$(dirname -- "$CAIRN_BINARY")
preload=$build/tests/fakes/malloc.so
[ -e "$preload" ] || { echo "skipped: $preload is not built" && exit 77; }
if ldd "$CAIRN_BINARY" | grep -q libasan; then echo "skipped: the sanitizer has its own malloc" && exit 77; fi

# failing KIND NUMBER COMMAND...: sets `code`, and `asked`, the file that asked for that allocation (or the count of all).
# The command runs in a folder of its own, whose file `result` is to be the same in all runs that end with 0.
failing() {
    rm -rf run asked
    mkdir run
    code=0 asked=
    (cd run && exec timeout "$hang_limit" env LD_PRELOAD="$preload" CAIRN_TEST_MALLOC_KIND="$1" CAIRN_TEST_MALLOC="$2" \
        CAIRN_TEST_MALLOC_LOG="$work/asked" "${@:3}") >"$work/.stdout" 2>"$work/.stderr" </dev/null || code=$?
    if [ -e asked ]; then read -r asked <asked; fi
}

# sweep KIND RUNS RESULT COMMAND...: RUNS allocations, and as many of the last tenth, where training is; RUNS 0: each.
# RESULT is a file that the command writes.
sweep() {
    local kind=$1 runs=$2 result=$3 all i number last
    declare -A ends=()
    shift 3
    failing "$kind" 1000000000 "$@"
    all=$asked
    { [ "$code" -eq 0 ] && [ "${all:-0}" -gt 5 ] && mv "run/$result" expected; } ||
        { complain "code $code, $all allocations: $*" && cat "$work/.stderr"; return; }
    [ "$runs" -gt 0 ] && [ "$runs" -lt "$all" ] || runs=$all
    for ((i = 0; i < (runs < all ? 2 * runs : all); i++)); do
        if [ "$i" -lt "$runs" ]; then number=$((1 + i * all / runs)); else number=$((all - (i - runs) * all / runs / 10)); fi
        failing "$kind" "$number" "$@"
        ends["$code $asked"]=$((${ends["$code $asked"]:-0} + 1))
        last=$(grep '^error:' "$work/.stderr" | tail -n 1)
        case $code in
        0) cmp -s "run/$result" expected || complain "$kind $number of $asked: other results: $*" ;;
        76) [[ $last == *memory* ]] || complain "$kind $number of $asked: the last error is '$last': $*" ;;
        127) grep -qx 'out of memory' "$work/.stderr" || complain "$kind $number of $asked: code 127, and not by the loader: $*" ;;
        *) complain "$kind $number of $asked: code $code instead of 76: $*" && tail -n 3 "$work/.stderr" ;;
        esac
    done
    for i in "${!ends[@]}"; do printf '%s %s: %d (code, asked by: runs)\n' "$kind" "$i" "${ends[$i]}"; done
}

ulimit -c 0
make_tiny_bert bert
mkdir data
for file in train dev_matched dev_mismatched; do head -n 40 "$sample/$file.tsv" >"data/$file.tsv"; done
short=(--max-steps 2 --batch-size 8 --threads 1 --snapshot-dir none --output-dir .)
glue=("$CAIRN_BINARY" glue --model-config "$work/bert/config.json" --vocab "$work/bert/vocab.txt" --data-dir "$work/data" --do-train)
predict=("$CAIRN_BINARY" predict --model "$work/trained" --input "$work/data/dev_matched.tsv" --text-columns "sentence1,sentence2"
    --threads 1 --output out)

sweep block "$(quick_or_deep 15 300)" model.safetensors "${glue[@]}" "${short[@]}" --do-eval --backend ref
if [ -e "$build/cairn_cpu.so" ]; then
    sweep block "$(quick_or_deep 4 300)" model.safetensors "${glue[@]}" "${short[@]}" --backend cpu
    sweep map "$(quick_or_deep 5 0)" model.safetensors "${glue[@]}" "${short[@]}" --backend cpu --kfac-interval 1
    auto=() # takes no other backend
    if [ -e "$build/cairn_cuda.so" ]; then auto=(--backend cpu); fi
    sweep load "$(quick_or_deep 40 0)" model.safetensors "${glue[@]}" "${short[@]}" "${auto[@]}"
fi
if [ -e "$build/cairn_gloo.so" ]; then # of two ranks one
    export CAIRN_TEST_AGENT_SILENCE=1h
    launch=(env CAIRN_TEST_MALLOC_RANK=1 "$CAIRN_BINARY" launch --ranks 2 -- "${glue[@]:1}" "${short[@]}" --kfac-interval 1 --pipeline)
    sweep map "$(quick_or_deep 2 15)" model.safetensors "${launch[@]}" gpipe
fi
if [ -n "${CAIRN_TEST_DEEP:-}" ]; then
    expect 0 "${glue[@]}" "${short[@]}" --output-dir trained
    sweep map 0 model.safetensors "${glue[@]}" "${short[@]}" --threads 3
    for kind in map block; do
        sweep $kind 100 out "${predict[@]}"
        if [ -e "$build/cairn_gloo.so" ]; then sweep $kind 15 model.safetensors "${launch[@]}" zb-h1; fi
    done
    make_sample_text
    expect 0 "$CAIRN_BINARY" shards --input text --vocab vocab.txt --max-seq-length 64 --output-dir shards
    make_tiny_config tiny.json
    pretrain=("$CAIRN_BINARY" pretrain --do-train --model-config "$work/tiny.json")
    expect 0 "${pretrain[@]}" --data-dir shards "${short[@]}" --output-dir base
    for kind in map block; do
        sweep $kind 100 model.safetensors "${pretrain[@]}" --data-dir "$work/shards" "${short[@]}"
        sweep $kind 100 model.safetensors "$CAIRN_BINARY" adapt --model "$work/base" --input "$work/text" "${short[@]}"
    done
fi
finish
