#!/usr/bin/env bash
# The main job in one command: BERT fine-tuned and evaluated twice, without recompute and with, compared in one table.
set -euo pipefail
# shellcheck source=hpcai_scripts/common.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/common.sh"

usage() {
    cat <<'END'
quickstart.sh [any flag of `cairn glue`]...

Installs what is missing, builds, fine-tunes and evaluates MNLI with --recompute none and with --recompute full, and
prints both side by side: losses (equal bit for bit), accuracy, memory, speed. It needs no download: by default it uses
the bundled sample (tasks/glue/sample), a vocabulary made from it and a small BERT from random weights.
  BERT_DIR, GLUE_DIR  set both to do the same with real weights and real data
  RESULTS_DIR         results go to $RESULTS_DIR/quickstart (default: results/ in the source folder): the runs none/ and
                      full/, loss.svg and memory.svg. Those of an earlier quickstart are removed first.
Further flags go to both runs: quickstart.sh --max-steps 100
Exit codes: 0 done and losses equal, 1 failed, 2 usage.
END
}

for argument in "$@"; do
    case $argument in -h | --help) usage && exit 0 ;; esac
done

if [ -n "${BERT_DIR:-}" ] && [ -z "${GLUE_DIR:-}" ]; then die 2 "BERT_DIR is set, GLUE_DIR is not; set both or none"; fi
if [ -z "${BERT_DIR:-}" ] && [ -n "${GLUE_DIR:-}" ]; then die 2 "GLUE_DIR is set, BERT_DIR is not; set both or none"; fi

find_cairn
out=${RESULTS_DIR:-$cairn_root/results}/quickstart
sample=$cairn_root/tasks/glue/sample
rm -rf -- "$out/none" "$out/full" "$out/vocab.txt" "$out/loss.svg" "$out/memory.svg"
mkdir -p -- "$out"

if [ -n "${BERT_DIR:-}" ]; then
    flags=(--model "$BERT_DIR" --data-dir "$GLUE_DIR")
else
    size=$(sed -n 's/.*"vocab_size": *\([0-9]*\).*/\1/p' "$sample/config.json")
    "$cairn" vocab --input "$sample/train.tsv,$sample/dev_matched.tsv,$sample/dev_mismatched.tsv" --size "$size" \
        --output "$out/vocab.txt"
    flags=(--config "$sample/quickstart.json" --model-config "$sample/config.json" --vocab "$out/vocab.txt"
        --data-dir "$sample")
fi

for policy in none full; do
    say "== MNLI with --recompute $policy =="
    "$cairn" glue "${flags[@]}" --task MNLI --do-train --do-eval --recompute "$policy" --output-dir "$out/$policy" "$@"
done
"$cairn" report "$out/none" "$out/full" --output-dir "$out"
