#!/usr/bin/env bash
# `cairn pretrain --input`: the stages give the same files as the single commands, also when killed at any moment.
set -euo pipefail
# shellcheck source=tests/scripts/lib.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"

make_sample_text
make_tiny_config model.json
recipe=(--model-config model.json --max-seq-length 32 --batch-size 8 --max-steps 4 --threads 1)
stages=(--input "$dump" --eval-fraction 0.2 --dupe-factor 2)

# The single commands. text/ and vocab.txt exist.
expect 0 "$CAIRN_BINARY" shards --input text --vocab vocab.txt --max-seq-length 32 --eval-fraction 0.2 --dupe-factor 2 \
    --output-dir shards
expect 0 "$CAIRN_BINARY" pretrain "${recipe[@]}" --vocab vocab.txt --data-dir shards --eval-dir shards/eval --output-dir alone

same_as_alone() { # FOLDER
    cmp "$1/vocab.txt" vocab.txt || complain "$1: another vocabulary"
    cmp <(cat "$1"/text/part-*) <(cat text/part-*) || complain "$1: other text"
    cmp <(cat "$1"/shards/part-* "$1"/shards/eval/part-*) <(cat shards/part-* shards/eval/part-*) ||
        complain "$1: other shards"
    cmp <(losses "$1") <(losses alone) || complain "$1: other losses"
    cmp "$1/model.safetensors" alone/model.safetensors || complain "$1: another model"
    cmp "$1/eval_results.txt" alone/eval_results.txt || complain "$1: another evaluation"
}

# One command: the vocabulary has the model's size.
expect 0 "$CAIRN_BINARY" pretrain "${recipe[@]}" "${stages[@]}" --output-dir whole
same_as_alone whole
expect 0 "$CAIRN_BINARY" pretrain "${recipe[@]}" "${stages[@]}" --output-dir whole
says "whole/text was finished before" "whole/vocab.txt exists already" "whole/shards: all shards exist already" \
    "this run was finished before"

# Killed repeatedly, each time later, until it completes.
killed=0
for tenths in $(seq 1 60); do
    code=0
    timeout -s KILL "$(awk -v t="$tenths" 'BEGIN { print 0.015 * t * sqrt(t) }')" "$CAIRN_BINARY" pretrain "${recipe[@]}" \
        "${stages[@]}" --output-dir halted >/dev/null 2>notes || code=$?
    [ "$code" -ne 0 ] || break
    [ "$code" -eq 137 ] || { complain "exit code $code: $(tail -n 3 notes)" && break; }
    killed=$((killed + 1))
done
echo "killed $killed times"
[ "$killed" -ge 2 ] || complain "it was killed fewer than 2 times"
same_as_alone halted

# Between two stages: after the first one, and with the record of a vocabulary that is missing.
mkdir -p part/text
cp text/* part/text/
expect 0 "$CAIRN_BINARY" pretrain "${recipe[@]}" "${stages[@]}" --output-dir part
says "part/text was finished before"
same_as_alone part
rm -r part/vocab.txt part/shards
expect 0 "$CAIRN_BINARY" pretrain "${recipe[@]}" "${stages[@]}" --output-dir part
same_as_alone part

# A signal in a stage: 75, at once, with a message how to resume.
awk '/<page>/ {pages = 1} !pages {print} pages && !/<\/mediawiki>/ {body = body $0 "\n"}
     END {for (i = 0; i < 100; i++) printf "%s", body; print "</mediawiki>"}' "$dump" >large.xml
"$CAIRN_BINARY" pretrain --model-config model.json --max-steps 1000000000 --input large.xml --output-dir stopped 2>notes &
job=$!
wait_until 60 holds notes 'large.xml: MediaWiki' || complain "it does not begin"
kill -TERM "$job"
code=0
wait "$job" || code=$?
[ "$code" -eq 75 ] || complain "exit code $code after SIGTERM: $(cat notes)"
grep -q 'same command' notes || complain "it does not say how to resume: $(cat notes)"

# The user's vocabulary, and a model's.
expect 0 "$CAIRN_BINARY" pretrain "${recipe[@]}" "${stages[@]}" --vocab vocab.txt --output-dir own
[ ! -e own/stages.json ] || complain "a vocabulary was made although one was given"
same_as_alone own
expect 0 "$CAIRN_BINARY" pretrain --model alone "${recipe[@]:2}" "${stages[@]}" --output-dir further
cmp <(cat further/shards/part-*) <(cat shards/part-*) || complain "the model's vocabulary was not used"
cmp -s further/model.safetensors alone/model.safetensors && complain "training changed nothing"

# Wrong use, reported before anything is written.
expect 2 "$CAIRN_BINARY" pretrain "${recipe[@]}" --input "$dump" --data-dir shards --output-dir x
says --data-dir
expect 2 "$CAIRN_BINARY" pretrain "${recipe[@]}" --input "$dump" --do-train --do-eval --output-dir x
says --eval-fraction
expect 2 "$CAIRN_BINARY" pretrain "${recipe[@]}" --input "$dump" --do-eval --output-dir x
expect 2 "$CAIRN_BINARY" pretrain "${recipe[@]}" "${stages[@]}" --eval-dir shards/eval --output-dir x
expect 2 "$CAIRN_BINARY" pretrain "${recipe[@]}" "${stages[@]}" --dry-run --output-dir x
[ ! -e x ] || complain "refused, but something was written"
expect 1 "$CAIRN_BINARY" pretrain "${recipe[@]}" --input nowhere.xml --output-dir y
says nowhere.xml

# Another size or input in the same folder, and a vocabulary from elsewhere there.
expect 2 "$CAIRN_BINARY" pretrain "${recipe[@]}" "${stages[@]}" --size 500 --output-dir whole
says whole/vocab.txt "other options"
expect 2 "$CAIRN_BINARY" pretrain "${recipe[@]}" --input large.xml --output-dir whole
says "other input"
mkdir foreign && cp vocab.txt foreign/
expect 2 "$CAIRN_BINARY" pretrain "${recipe[@]}" "${stages[@]}" --output-dir foreign
says foreign/vocab.txt --vocab
expect 0 "$CAIRN_BINARY" pretrain "${recipe[@]}" "${stages[@]}" --dry-run --output-dir whole
same_as_alone whole
finish
