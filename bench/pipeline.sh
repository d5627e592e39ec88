#!/usr/bin/env bash
# A step of every schedule on two ranks of one thread each, and of four stages on one rank: Cairn's beside PyTorch's own
# pipelining over Gloo, the same model, weights, sequences and optimizer, with the losses of both and of one rank.
set -euo pipefail
# shellcheck source=hpcai_scripts/common.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/../hpcai_scripts/common.sh"

usage() {
    cat <<'HELP'
pipeline.sh [--model NAME|FILE] [--sequences N] [--micro-batches N] [--steps N] [--rounds N] [--python FILE]

  --model NAME       bert-mini, bert-small … of 4 layers or a multiple, or a config.json (default bert-mini)
  --sequences N      of a step, of 128 tokens (default 32), in --micro-batches N (default 8)
  --steps N          of each run; of Cairn's 3 more come first (default 3)
  --rounds N         of all runs, interleaved (default 7)
  --python FILE      a Python with torch and transformers (default python3); without them Cairn's runs are alone

Rank r runs on core r. A line of JSON for each run, then medians over all steps but the first 3, of PyTorch's over all but
the first: seconds of a step, and its processor time on all ranks; and the largest relative difference of a step's loss from
Cairn's on one rank.
HELP
}

model=bert-mini sequences=32 micros=8 steps=3 rounds=7 python=python3
while [ $# -gt 0 ]; do
    case $1 in
    -h | --help) usage && exit 0 ;;
    --model) model=$2 ;;
    --sequences) sequences=$2 ;;
    --micro-batches) micros=$2 ;;
    --steps) steps=$2 ;;
    --rounds) rounds=$2 ;;
    --python) python=$2 ;;
    *) die 2 "unknown flag '$1'; see --help" ;;
    esac
    shift 2
done

find_cairn
work=$(mktemp -d)
trap 'rm -rf -- "$work"' EXIT
uptime >&2

# Pairs that fill 128 tokens: eight of the sample's sentences on each side.
mkdir -- "$work/data"
awk -F '\t' -v OFS='\t' -v n="$sequences" 'NR == 1 { print; next }
    { a = a " " $9; b = b " " $10 }
    NR % 16 == 0 { $9 = a; $10 = b; print; a = b = ""; if (++rows == n) exit }' \
    "$cairn_root/tasks/glue/sample/train.tsv" >"$work/data/train.tsv"
cp -- "$work/data/train.tsv" "$work/data/dev_matched.tsv"
cp -- "$work/data/train.tsv" "$work/data/dev_mismatched.tsv"
"$cairn" vocab --input "$cairn_root/tasks/glue/sample/train.tsv" --size 600 --output "$work/vocab.txt" 2>/dev/null
glue=(glue --vocab "$work/vocab.txt" --data-dir "$work/data" --do-train --backend cpu --precision fp32 --threads 1
    --dropout 0 --schedule constant --warmup 0 --max-grad-norm 0 --batch-size "$sequences" --save-every 0 --resume never)
"$cairn" "${glue[@]}" --model-config "$model" --max-steps 1 --learning-rate 0 --output-dir "$work/start" 2>"$work/log" ||
    { cat "$work/log" >&2 && exit 1; }
glue+=(--model "$work/start" --learning-rate 1e-4 --max-steps $((steps + 3)) --micro-batch-tokens $((sequences / micros * 128))
    --output-dir "$work/run")
layers=$(sed -n 's/.*"num_hidden_layers": *\([0-9]*\).*/\1/p' "$work/start/config.json")

# ours RANKS SCHEDULE [FLAG...]: on one rank a schedule is called NAME-alone
# shellcheck disable=SC2016 # for the inner shell
ours() {
    local n=$1 schedule=$2 name=$2 r pids=()
    shift 2
    [ "$n$schedule" = 1none ] || [ "$n" -gt 1 ] || name=$schedule-alone
    rm -rf -- "$work/run"
    for ((r = 0; r < n; r++)); do
        RANK=$r WORLD_SIZE=$n LOCAL_RANK=$r LOCAL_WORLD_SIZE=$n CAIRN_JOB_TOKEN=$$ \
            taskset -c "$r" "$cairn" "${glue[@]}" --pipeline "$schedule" "$@" >"$work/log.$r" 2>&1 &
        pids+=("$!")
    done
    for r in "${pids[@]}"; do wait "$r" || { cat "$work"/log.* >&2 && exit 1; }; done
    number() { sed -n "s/.*\"$1\": *\([^,}]*\).*/\1/p" "$work/run/metrics.jsonl" | paste -sd ' '; }
    printf '{"by": "cairn", "schedule": "%s", "seconds": [%s], "processor": %s, "losses": [%s]}\n' "$name" \
        "$(number seq_per_s | awk -v n="$sequences" '{ for (i = 1; i <= NF; i++) printf "%s%.6f", (i > 1 ? ", " : ""), n / $i }')" \
        "$(sed -n 's/.*"steps": *\([0-9]*\).*"processor_s": *\([^,}]*\).*/\1 \2/p' "$work/run/ranks.jsonl" |
            awk '{ s += $2 / $1 } END { printf "%.6f", s }')" \
        "$(number loss | sed 's/ /, /g')"
}

theirs() {
    local n=$1
    shift
    OMP_NUM_THREADS=1 "$python" -m torch.distributed.run --nproc-per-node "$n" --master-port 29411 \
        "$cairn_root/bench/peer_pipeline.py" --model "$work/start" --data-dir "$work/data" --cores 0,1 \
        --micro-batches "$micros" --steps "$steps" "$@" 2>"$work/log" | sed 's/^{/{"by": "torch", /' ||
        { cat "$work/log" >&2 && exit 1; }
}

evenly() { seq -s , "$1" | sed "s/[0-9]\+/$((layers / $1))/g"; }
peer=$("$python" -c 'import torch, transformers' 2>/dev/null && echo yes || echo no)
[ "$peer" = yes ] || say "no torch or transformers in $python: Cairn's runs are alone"
for ((round = 1; round <= rounds; round++)); do
    ours 1 none
    ours 1 gpipe --stages 4 --stage-layers "$(evenly 4)"
    for schedule in gpipe 1f1b zb-h1; do ours 2 "$schedule" --stage-layers "$(evenly 2)"; done
    for schedule in interleaved zb-v; do ours 2 "$schedule" --stage-layers "$(evenly 4)"; done
    ours 2 chimera --stage-layers "$(evenly 2)" --micro-batch-tokens $((sequences / micros * 128))
    [ "$peer" = yes ] || continue
    theirs 1 none
    theirs 2 gpipe 1f1b interleaved zbv
done | tee "$work/all"
uptime >&2

awk '
    function median(m,   i, j, t) {
        for (i = 2; i <= m; i++) { t = v[i]; for (j = i - 1; j >= 1 && v[j] > t; j--) v[j + 1] = v[j]; v[j + 1] = t }
        return m % 2 ? v[(m + 1) / 2] : (v[m / 2] + v[m / 2 + 1]) / 2
    }
    function list(name,   s) { s = $0; sub(".*\"" name "\": \\[", "", s); sub(/\].*/, "", s); return split(s, x, ", ") }
    {
        match($0, /"by": "[a-z]*"/); by = substr($0, RSTART + 7, RLENGTH - 8)
        match($0, /"schedule": "[a-z0-9-]*"/); key = by " " substr($0, RSTART + 13, RLENGTH - 14)
        if (!(key in n)) order[++keys] = key
        k = list("seconds")
        for (i = by == "cairn" ? 4 : 2; i <= k; i++) all[key, ++n[key]] = x[i]
        match($0, /"processor": [0-9.e-]*/); processor[key, ++runs[key]] = substr($0, RSTART + 13, RLENGTH - 13)
        k = list("losses")
        for (i = 1; i <= k; i++) {
            if (key == "cairn none" && !(i in first)) first[i] = x[i]
            d = (x[i] - first[i]) / first[i]
            if (d < 0) d = -d
            if (d > worst[key]) worst[key] = d
        }
    }
    END {
        printf "%-20s %12s %12s %14s %16s\n", "run", "median (s)", "least (s)", "processor (s)", "loss differs by"
        for (k = 1; k <= keys; k++) {
            key = order[k]
            for (i = 1; i <= n[key]; i++) v[i] = all[key, i] + 0
            middle = median(n[key]); least = v[1]
            for (i = 1; i <= runs[key]; i++) v[i] = processor[key, i] + 0
            printf "%-20s %12.4f %12.4f %14.4f %16.1e\n", key, middle, least, median(runs[key]), worst[key]
        }
    }' "$work/all"
