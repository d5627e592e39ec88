#!/usr/bin/env bash
# Pretraining's speed on this CPU: full steps of BERT-Base in phase 1 beside fine-tuning's, the head's memory, and packed
# against padded rows on the lengths of real articles.
set -euo pipefail
# shellcheck source=hpcai_scripts/common.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/../hpcai_scripts/common.sh"

usage() {
    cat <<'END'
pretrain.sh [BATCH [ROUNDS]]      (default 16 2)

  DUMP, VOCAB  a piece of a MediaWiki dump and a vocabulary (default: shared data's, beside this folder)
  MODEL        what runs packed and padded (default bert-mini), STEPS of 16 sequences each (default 8)
  BUILD        a folder with cairn, cairn_cpu.so and bench_step (default: build, which is built here)
Needs GNU time. Keep the machine quiet meanwhile; figures of one run are to be compared with each other, not with another day's.
END
}

case ${1:-} in -h | --help) usage && exit 0 ;; esac
batch=${1:-16} rounds=${2:-2} data=$cairn_root/../shared/data config=$cairn_root/bench/configs/bert-base.json
dump=${DUMP:-$(find "$data/wikipedia" -name 'enwiki*.bz2' | head -n 1)} vocab=${VOCAB:-$data/vocab/bert-base-uncased-vocab.txt}
folder=${BUILD:-$cairn_root/build}
[ -r "$dump" ] || die 2 "there is no dump; name one (see --help)"
if [ -z "${BUILD:-}" ]; then
    find_cairn
    cmake --build "$folder" --target bench >/dev/null
fi
cairn=$folder/cairn
[ -x /usr/bin/time ] || die 2 "install GNU time (/usr/bin/time)"
export CAIRN_BACKEND_DIR=$folder
work=$(mktemp -d)
trap 'rm -rf -- "$work"' EXIT

date -u +%Y-%m-%d
lscpu | grep -E '^(Model name|CPU\(s\)|L2 cache|L3 cache)'
uptime

say "== BERT-Base, $batch x 128 tokens, fp32: a step of phase 1 (20 predictions, LAMB) =="
"$folder/bench_step" --predictions 20 --optimizer lamb "$config" "$batch" 128 "$rounds" fp32 none
say "== the same, fine-tuning (three labels, AdamW) =="
"$folder/bench_step" "$config" "$batch" 128 "$rounds" fp32 none

say "== memory of the head: 16 x 512 tokens, 76 predictions =="
"$cairn" plan --model-config "$config" --batch-size 16 --max-seq-length 512 --predictions 76 --recompute none --explain \
    2>/dev/null >"$work/plan"
# Columns: instr, phase, layer, live bytes, scratch, op; the gather of masked rows is the head's first instr.
awk '$6 == "gather" && /mlm.rows/ { before = $4 } $6 == "mlm_xent" { scratch = $5; live = $4 } END {
    mib = 1024 * 1024
    printf "%.1f MiB of tensors and %.1f MiB of scratch; logits of 76 x 16 rows would be %.1f MiB, of all tokens %.1f MiB, " \
        "and their gradient as much again\n",
        (live - before) / mib, scratch / mib, 76 * 16 * 30522 * 4 / mib, 8192 * 30522 * 4 / mib }' "$work/plan"

say "== ${MODEL:-bert-mini}, real articles, at most 512 tokens, ${STEPS:-8} steps of 16 =="
"$cairn" wiki --input "$dump" --output-dir "$work/text" 2>/dev/null
"$cairn" shards --input "$work/text" --vocab "$vocab" --max-seq-length 512 --output-dir "$work/shards" 2>&1 |
    sed -n 's/^.*sentences: //p'
for layout in packed padded packed padded; do
    flags=(--padded)
    [ "$layout" = padded ] || flags=()
    /usr/bin/time -f '%U %S' -o "$work/times" "$cairn" pretrain --model-config "${MODEL:-bert-mini}" --vocab "$vocab" \
        --data-dir "$work/shards" --max-seq-length 512 --batch-size 16 --max-steps "${STEPS:-8}" "${flags[@]}" --resume never \
        --save-every off --output-dir "$work/run" 2>/dev/null
    # metrics.jsonl: a step's tokens are its sequences by its two rates
    tokens=$(sed -n 's/.*"seq_per_s": \([0-9.]*\), "tokens_per_s": \([0-9.]*\).*/\1 \2/p' "$work/run/metrics.jsonl" |
        awk '{ n += 16 * $2 / $1 } END { print n }')
    wall=$(sed -n 's/.*"tokens_per_s": \([0-9.]*\).*/\1/p' "$work/run/run.json")
    read -r user system <"$work/times"
    awk -v l="$layout" -v n="$tokens" -v w="$wall" -v u="$user" -v s="$system" \
        'BEGIN { printf "%s: %.0f tokens/s, %.0f per second of processor time (start included)\n", l, w, n / (u + s) }'
done
uptime
