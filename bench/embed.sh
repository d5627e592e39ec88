#!/usr/bin/env bash
# The time per pair of large batches of sentence embeddings over that of one micro-batch: planned for an H100, and measured
# on this CPU, beside sentence-transformers' losses, in one run, interleaved.
set -euo pipefail
# shellcheck source=hpcai_scripts/common.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/../hpcai_scripts/common.sh"

case ${1:-} in
-h | --help)
    cat <<'END'
embed.sh [PAIRS [ROUNDS [MINUTES]]]      (default 32 7 600; no round begins later)

Pairs of texts of 64 tokens, --loss infonce. First, by `cairn plan --device h100`, BERT-Base within 16 GiB: the largest batch
that fits in one micro-batch, and 65536 pairs. Then steps on this CPU: PAIRS in one micro-batch, and 16 times as many in
micro-batches of that size, within the memory that was planned for the former. A round runs every case once, in a process of
its own; its first step is not timed.

  PEER_PYTHON  a Python with sentence-transformers: measures MultipleNegativesRankingLoss and
               CachedMultipleNegativesRankingLoss (mini_batch_size: PAIRS) beside
  CONFIG       the model's config.json (default bench/configs/minilm-l6.json, of the sizes of all-MiniLM-L6)

Prints a table with the fastest round of each case, its median and its slowest, and the largest peak of resident memory. Needs
GNU time. Keep the machine quiet meanwhile; figures of one run are to be compared with each other, not with another day's.
END
    exit 0
    ;;
esac
pairs=${1:-32} rounds=${2:-7} minutes=${3:-600} config=${CONFIG:-$cairn_root/bench/configs/minilm-l6.json} peer=${PEER_PYTHON:-}
for each in "$pairs" "$rounds" "$minutes"; do
    [[ $each =~ ^[1-9][0-9]*$ ]] || die 2 "expected numbers of pairs, rounds and minutes, found '$each'"
done
[ -x /usr/bin/time ] || die 2 "install GNU time (/usr/bin/time)"
find_cairn
work=$(mktemp -d)
trap 'rm -rf -- "$work"' EXIT
CAIRN_BACKEND_DIR=$(dirname -- "$cairn") OMP_NUM_THREADS=$(nproc)
export CAIRN_BACKEND_DIR OMP_NUM_THREADS XDG_CACHE_HOME=$work/cache # rates are those of this run
if [ -z "$peer" ] || ! "$peer" -c 'import sentence_transformers' 2>"$work/errors"; then
    say "sentence-transformers is left out: ${peer:-PEER_PYTHON is not set} ${peer:+$(tail -n 1 "$work/errors")}"
    peer=''
fi

number() { grep -o "\"$1\": [0-9.e+-]*" | sed -n '1s/.* //p'; } # NAME: its first value

# plan_none FLAG...: the line of the policy none
plan_none() {
    "$cairn" plan --task embed --model-config bert-base --max-seq-length 64 --device h100 --memory-budget 16GiB --json "$@" |
        grep '"name": "none"'
}
most=$(plan_none --batch-size "$pairs" --micro-batch-tokens step | number max_batch)
small=$(plan_none --batch-size "$most" --micro-batch-tokens step)
large=$(plan_none --batch-size 65536 --micro-batch-tokens auto)
awk -v n="$most" -v small="$(number step_s <<<"$small")" -v large="$(number step_s <<<"$large")" -v peak="$(number peak <<<"$large")" 'BEGIN {
    printf "h100, BERT-Base, planned: %d pairs in one micro-batch %.4g s, %.4f ms a pair; 65536 pairs %.4g s, %.4f ms a pair, %.3f times, peak %.0f MiB\n",
        n, small, 1000 * small / n, large, 1000 * large / 65536, large / 65536 / (small / n), peak / 1048576 }'

# Each word is one piece of the vocabulary.
words=$(($(number vocab_size <"$config") - 5))
{ printf '[%s]\n' PAD UNK CLS SEP MASK && seq 100001 $((100000 + words)); } >"$work/vocab.txt"
awk -v rows=$((16 * pairs)) -v words="$words" 'BEGIN {
    print "a\tb"
    for (i = 0; i < 2 * rows; i++)
        for (w = 1; w <= 62; w++) printf "%d%s", 100001 + int(rand() * words), w < 62 ? " " : i % 2 ? "\n" : "\t" }' >"$work/train.tsv"

# timed COMMAND...: its standard output is $work/out
timed() {
    /usr/bin/time -f %M -o "$work/peak" "$@" >"$work/out" 2>"$work/errors" || die 1 "$1: $(tail -n 1 "$work/errors")"
}

# run_cairn PRECISION BATCH STEPS FLAG...: sets `seconds`, of a step behind the first
run_cairn() {
    timed "$cairn" embed --model-config "$config" --vocab "$work/vocab.txt" --data-dir "$work" --text-columns a,b --max-seq-length 64 \
        --precision "$1" --batch-size "$2" --max-steps $(($3 + 1)) --do-train --resume never --save-every off \
        --output-dir "$work/run" "${@:4}"
    seconds=$(sed -n 's/.*"trained_s": //p' "$work/run/metrics.jsonl" | awk 'NR == 1 { first = $1 } END { print ($1 - first) / (NR - 1) }')
}

# run_peer BATCH STEPS FLAG...
run_peer() {
    timed "$peer" "$cairn_root/bench/peer_embed.py" --model-config "$config" --vocab "$work/vocab.txt" --pairs "$work/train.tsv" \
        --batch "$1" --steps "$2" "${@:3}"
    seconds=$(number step_s <"$work/out")
}

# record NAME BATCH: milliseconds a pair, KiB
record() {
    printf '%s\t%d\t%s\t%s\n' "$1" "$2" "$(awk -v s="$seconds" -v n="$2" 'BEGIN { print 1000 * s / n }')" "$(tail -n 1 "$work/peak")" |
        tee -a "$work/steps" >&2
}

uptime >&2
for ((round = 0; round < rounds && (round == 0 || SECONDS < 60 * minutes); round++)); do
    for precision in fp32 bf16; do
        run_cairn "$precision" "$pairs" 4 --micro-batch-tokens step
        record "Cairn, $precision" "$pairs"
        run_cairn "$precision" $((16 * pairs)) 1 --micro-batch-tokens $((128 * pairs)) \
            --memory-budget "$(number planned_peak_bytes <"$work/run/run.json")"
        record "Cairn, $precision" $((16 * pairs))
    done
    [ -n "$peer" ] || continue
    run_peer "$pairs" 4
    record 'sentence-transformers, fp32' "$pairs"
    run_peer $((16 * pairs)) 1 --mini-batch "$pairs"
    record 'sentence-transformers, fp32' $((16 * pairs))
done
uptime >&2

printf '%s, %s, %s threads, commit %s%s\n\n' "$(date -u +%Y-%m-%d)" "$(lscpu | sed -n 's/^Model name: *//p')" "$(nproc)" \
    "$(git -C "$cairn_root" rev-parse --short HEAD)" \
    "${peer:+, $("$peer" -c 'import torch, sentence_transformers as s; print("PyTorch", torch.__version__, "sentence-transformers", s.__version__)')}"
sort -t $'\t' -k1,1 -k2,2n -k3,3g "$work/steps" | awk -F'\t' '
    { k = $1 FS $2; if (!(k in n)) order[++cases] = k; if (!($1 in least)) least[$1] = $3; ms[k, ++n[k]] = $3; if ($4 > peak[k]) peak[k] = $4 }
    END {
        print "| | pairs | ms a pair (median–slowest) | times that of fewer | peak resident, MiB |\n|---|---|---|---|---|"
        for (i = 1; i <= cases; i++) {
            k = order[i]; split(k, part, FS)
            printf "| %s | %d | %.2f (%.2f–%.2f) | %.2f | %.0f |\n", part[1], part[2], ms[k, 1], ms[k, int((n[k] + 1) / 2)], ms[k, n[k]],
                ms[k, 1] / least[part[1]], peak[k] / 1024 } }'
