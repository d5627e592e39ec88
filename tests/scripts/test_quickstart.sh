#!/usr/bin/env bash
# quickstart.sh as a new user runs it: it must produce everything that the README promises. 60 steps show all but what it
# learns, which `test.sh deep` shows, by all 700.
set -euo pipefail
# shellcheck source=tests/scripts/lib.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"

export RESULTS_DIR="my results"
out="my results/quickstart"
mkdir -p "$out/none" "$out/notes"
echo old >"$out/none/metrics.jsonl"
echo mine >"$out/notes/kept"

expect 2 "$scripts/quickstart.sh" --bach-size 3
says "the nearest is --batch-size"
has_file "$out/none/metrics.jsonl"
expect 1 flock "$out/.quickstart" "$scripts/quickstart.sh"
says "another quickstart is running in this folder"
has_file "$out/none/metrics.jsonl"

TIMEFORMAT='%R %U %S'
# shellcheck disable=SC2046 # a flag and its value, or none
{ time expect 0 "$scripts/quickstart.sh" $(quick_or_deep "--max-steps 60" ""); } 2>times.txt
read -r wall user system <times.txt
printf '%s\n' "$output"
echo "quickstart: $wall s, $user s of user and $system s of system time on $(nproc) cores"

says "recompute" "none" "full" "final loss" "dev_matched accuracy" "dev_mismatched accuracy" "planned peak memory" \
    "measured peak memory" "sequences/s" "losses: equal, bit for bit"
has_file "$out"/{loss.svg,memory.svg,vocab.txt} "$out"/{none,full}/{metrics.jsonl,run.json,eval_results.json,report.html} \
    "$out"/{none,full}/{model.safetensors,config.json,tokenizer_config.json,vocab.txt}
cmp -s "$out/notes/kept" <(echo mine) || complain "a file that was not quickstart's was removed"

[ "$(losses "$out/none" | wc -l)" -ge 50 ] || complain "fewer than 50 steps"
cmp <(losses "$out/none") <(losses "$out/full") || complain "the losses differ"
cmp "$out/none/model.safetensors" "$out/full/model.safetensors" || complain "the trained weights differ"

for run in none full; do
    for key in eval_accuracy eval_accuracy_mm; do
        value=$(json_number "$out/$run/eval_results.json" "$key")
        awk -v v="$value" -v least="$(quick_or_deep 0.2 0.90)" 'BEGIN { exit !(v != "" && v >= least && v <= 1) }' ||
            complain "$run: $key is '$value'"
    done
done
losses "$out/none" | awk '{ x[NR] = $1 } END { for (i = 1; i <= 10; i++) fall += x[i] - x[NR + 1 - i]; exit !(fall > 0) }' ||
    complain "the loss does not fall"
if [ -n "${CAIRN_TEST_DEEP:-}" ]; then # under 3 minutes on 2 cores, in processor time: other load does not matter
    awk -v t="$user" -v s="$system" 'BEGIN { exit !(t + s <= 2 * 180) }' || complain "it took more than 2 x 180 s of processor time"
fi

# A fraction of the activation memory.
none=$(json_number "$out/none/run.json" activations)
full=$(json_number "$out/full/run.json" activations)
awk -v a="$none" -v b="$full" 'BEGIN { exit !(b > 0 && b < 0.6 * a) }' || complain "activations: $none bytes, with full $full"

# Well-formed XML, by counting tags; by a parser where there is one.
well_formed() {
    tr '\n' ' ' <"$1" | sed 's/</\n</g' | awk '
        /^<\?/ || /^<!/ || !/^</ { next }
        { match($0, /^<\/?[A-Za-z][A-Za-z0-9:-]*/); name = substr($0, 2, RLENGTH - 1); end = index($0, ">") }
        !end || RLENGTH < 2 { bad = 1; exit }
        substr(name, 1, 1) == "/" { if (n == 0 || stack[n--] != substr(name, 2)) { bad = 1; exit } next }
        substr($0, end - 1, 1) == "/" { next }
        { stack[++n] = name; seen++ }
        END { exit bad || n != 0 || seen == 0 }'
}
well_formed <(echo '<svg><g></svg>') && complain "the check of XML accepts everything"
for svg in "$out/loss.svg" "$out/memory.svg"; do
    if ! grep -q '<svg' "$svg" || ! well_formed "$svg"; then complain "$svg is not well-formed"; fi
    if command -v xmllint >/dev/null; then xmllint --noout "$svg" || complain "$svg: xmllint refuses it"; fi
    if ! grep -q none "$svg" || ! grep -q full "$svg"; then complain "$svg does not name both runs"; fi
done

# With the user's weights, data and flags: a tiny model, relative paths, three steps.
make_tiny_bert "tiny bert"
"$CAIRN_BINARY" glue --model-config "tiny bert/config.json" --vocab "tiny bert/vocab.txt" --data-dir "$sample" --do-train \
    --max-steps 1 --output-dir "bert dir" 2>/dev/null
mkdir bin && printf '#!/bin/sh\nexit 65\n' >bin/flock && chmod +x bin/flock # as on a file system without locks
expect 0 env PATH="$work/bin:$PATH" BERT_DIR="bert dir" GLUE_DIR="$sample" RESULTS_DIR="real results" "$scripts/quickstart.sh" --max-steps 3
says "losses: equal, bit for bit, over 3 steps"
has_file "real results/quickstart/memory.svg"

# Real data needs both places.
expect 2 env BERT_DIR=x "$scripts/quickstart.sh"
says GLUE_DIR
expect 2 env GLUE_DIR=x "$scripts/quickstart.sh"
says BERT_DIR
has_file "$out/loss.svg" # a refused command removes nothing
finish
