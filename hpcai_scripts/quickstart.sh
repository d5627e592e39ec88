#!/usr/bin/env bash
# The main job in one command: fine-tunes and evaluates BERT without recompute and with it, and compares both in a
# table. With --task pretrain: runs every stage from a Wikipedia dump to a pretrained BERT.
set -euo pipefail
# shellcheck source=hpcai_scripts/common.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/common.sh"

usage() {
    cat <<'END'
quickstart.sh [--task MNLI] [any flag of `cairn glue`]...
quickstart.sh --task pretrain [any flag of `cairn pretrain`]...

Installs missing packages, builds, fine-tunes and evaluates MNLI with --recompute none and with --recompute full, and
prints both side by side: losses (equal bit for bit), accuracy, memory, speed. It needs no download: by default it uses
the bundled sample (tasks/glue/sample), a vocabulary made from it and a small BERT from random weights.
  BERT_DIR, GLUE_DIR  set both to use real weights and real data
  RESULTS_DIR         results go to $RESULTS_DIR/quickstart (default: results/ in the source folder): the runs none/ and
                      full/, report.html, loss.svg and memory.svg. Those of an earlier quickstart are removed first.
Further flags go to both runs: quickstart.sh --max-steps 100

--task pretrain makes text, vocabulary and shards from the bundled dump (tasks/pretrain/sample), pretrains a tiny BERT
on them, evaluates it on held-out articles, and prints a summary of each stage. Results go to
$RESULTS_DIR/quickstart-pretrain: text/, vocab.txt, shards/, run/ (the model), loss.svg and memory.svg.
Exit codes: 0 done (and losses equal), 1 failed, 2 usage, 75 stopped by a signal.
END
}

task=MNLI flags=()
while [ $# -gt 0 ]; do
    case $1 in
    -h | --help) usage && exit 0 ;;
    --task=*) task=${1#*=} ;;
    --task) [ $# -ge 2 ] || die 2 "--task needs MNLI or pretrain" && task=$2 && shift ;;
    *) flags+=("$1") ;;
    esac
    shift
done
set -- "${flags[@]}"

# run_cairn COMMAND...: forwards a signal to the program, and ends the script after the program's save.
run_cairn() {
    local code=0
    run_alone "$cairn" "$@" || code=$?
    [ "$code" -eq 0 ] || exit "$code"
    end_if_stopped "between two stages"
}

# begin FOLDER COMMAND FLAG...: ends the script before anything is removed, where COMMAND refuses the flags, or where
# another quickstart is running in FOLDER.
begin() {
    local folder=$1 cairn_command=$2
    resolve_config "${@:3}"
    mkdir -p -- "$folder"
    exec 9>"$folder/.quickstart"
    flock --nonblock 9 || [ $? -ne 1 ] || # 1: it is taken; else there are no locks here, as flock says
        die 1 "$folder: another quickstart is running in this folder; wait for its end, or set RESULTS_DIR"
}

# ---- MNLI, with and without recompute ----

quickstart_mnli() {
    local out=${RESULTS_DIR:-$cairn_root/results}/quickstart sample=$cairn_root/tasks/glue/sample size flags policy
    begin "$out" glue --task MNLI "$@"
    rm -rf -- "$out/none" "$out/full" "$out/vocab.txt" "$out/loss.svg" "$out/memory.svg"
    if [ -n "${BERT_DIR:-}" ]; then
        flags=(--model "$BERT_DIR" --data-dir "$GLUE_DIR")
    else
        size=$(sed -n 's/.*"vocab_size": *\([0-9]*\).*/\1/p' "$sample/config.json")
        run_cairn vocab --input "$sample/train.tsv,$sample/dev_matched.tsv,$sample/dev_mismatched.tsv" --size "$size" \
            --output "$out/vocab.txt"
        flags=(--config "$sample/quickstart.json" --model-config "$sample/config.json" --vocab "$out/vocab.txt"
            --data-dir "$sample")
    fi
    for policy in none full; do
        say "== MNLI with --recompute $policy =="
        run_cairn glue "${flags[@]}" --task MNLI --do-train --do-eval --recompute "$policy" --output-dir "$out/$policy" "$@"
    done
    run_cairn report "$out/none" "$out/full" --output-dir "$out"
}

# ---- pretraining, from a dump ----

# number FILE KEY: the first number under KEY in JSON that Cairn wrote.
number() { sed -n "s/.*\"$2\": *\([-+0-9.eE]*\).*/\1/p" "$1" | head -n 1; }

# The mean of KEY over the first or last 20 steps: mean_of head|tail KEY METRICS
mean_of() { sed -n "s/.*\"$2\": *\([^,}]*\).*/\1/p" "$3" | "$1" -n 20 | awk '{ sum += $1 } END { printf "%.4f", sum / NR }'; }

# The baseline of a blind guess: the share of the commonest word (a full stop counts as a word).
commonest_word() {
    cat "$1"/part-*.txt | tr '[:upper:]' '[:lower:]' | sed 's/[^[:alnum:][:space:]]/ & /g' | tr -s '[:space:]' '\n' |
        awk 'NF { n++; if (++seen[$0] > seen[best]) best = $0 } END { printf "%.4f %s\n", seen[best] / n, best }'
}

quickstart_pretrain() {
    local out=${RESULTS_DIR:-$cairn_root/results}/quickstart-pretrain sample=$cairn_root/tasks/pretrain/sample text run size
    text=$out/text run=$out/run
    begin "$out" pretrain "$@"
    rm -rf -- "$text" "$out/vocab.txt" "$out/shards" "$run" "$out/loss.svg" "$out/memory.svg"
    size=$(number "$sample/config.json" vocab_size)
    say "== wiki: a dump to sentences =="
    run_cairn wiki --input "$sample/sample.xml" --output-dir "$text"
    say "== vocab: $size pieces =="
    run_cairn vocab --input "$text" --size "$size" --output "$out/vocab.txt"
    say "== shards: training data, and articles held out =="
    run_cairn shards --config "$sample/quickstart.json" --input "$text" --vocab "$out/vocab.txt" --output-dir "$out/shards"
    say "== pretrain: masked words and next sentences =="
    run_cairn pretrain --config "$sample/quickstart.json" --model-config "$sample/config.json" --vocab "$out/vocab.txt" \
        --data-dir "$out/shards" --eval-dir "$out/shards/eval" --output-dir "$run" "$@"
    run_cairn report "$run" --output-dir "$out"
    show_pretraining "$text/manifest.json" "$out" "$run/eval_results.json" "$run/metrics.jsonl"
}

# show_pretraining TEXT_MANIFEST OUT EVALUATION METRICS
show_pretraining() {
    local share word
    row() { printf '%-34s%s\n' "$1" "$2"; }
    read -r share word < <(commonest_word "$2/text")
    printf '\n'
    row "articles, sentences" "$(number "$1" articles), $(number "$1" sentences)"
    row "vocabulary" "$(wc -l <"$2/vocab.txt") pieces"
    row "loss, first and last 20 steps" "$(mean_of head loss "$4"), $(mean_of tail loss "$4")"
    row "of that masked words" "$(mean_of head mlm_loss "$4"), $(mean_of tail mlm_loss "$4")"
    row "on the held-out articles:" "$(number "$3" eval_samples) sequences, $(number "$3" eval_masked_words) masked words"
    row "  masked words predicted right" "$(printf '%.4f' "$(number "$3" eval_mlm_accuracy)")  (always \"$word\": $share)"
    row "  loss of masked words" "$(printf '%.4f' "$(number "$3" eval_mlm_loss)")"
    row "  next sentences classified right" "$(printf '%.4f' "$(number "$3" eval_nsp_accuracy)")"
    row "the model" "$2/run: cairn pretrain --do-eval --model, run_glue.sh --model, Hugging Face"
}

# ---- choice of the task ----

case $task in
MNLI)
    if [ -n "${BERT_DIR:-}" ] && [ -z "${GLUE_DIR:-}" ]; then die 2 "BERT_DIR is set, GLUE_DIR is not; set both or none"; fi
    if [ -z "${BERT_DIR:-}" ] && [ -n "${GLUE_DIR:-}" ]; then die 2 "GLUE_DIR is set, BERT_DIR is not; set both or none"; fi
    find_cairn
    quickstart_mnli "$@"
    ;;
pretrain)
    find_cairn
    quickstart_pretrain "$@"
    ;;
*) die 2 "--task $task: expected MNLI or pretrain; run_glue.sh does the other tasks" ;;
esac
