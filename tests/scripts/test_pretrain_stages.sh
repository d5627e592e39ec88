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

# Killed in each stage: before the text is recorded, before the vocabulary, between the passes over the text and after them,
# before the first step and between two.
for place in part-1 vocab-0 pass-1 pass-2 step1-0 step3-0; do
    CAIRN_TEST_AT=$place=kill expect 137 "$CAIRN_BINARY" pretrain "${recipe[@]}" "${stages[@]}" --output-dir halted
done
expect 0 "$CAIRN_BINARY" pretrain "${recipe[@]}" "${stages[@]}" --output-dir halted
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

# A signal in a stage: 75, with a message how to resume.
for place in part-1 pass-1; do
    CAIRN_TEST_AT=$place=term expect 75 "$CAIRN_BINARY" pretrain "${recipe[@]}" "${stages[@]}" --output-dir stopped
    says "same command"
done
expect 0 "$CAIRN_BINARY" pretrain "${recipe[@]}" "${stages[@]}" --output-dir stopped
same_as_alone stopped

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
expect 2 "$CAIRN_BINARY" pretrain "${recipe[@]}" --input "$dump,$dump" --output-dir whole
says "other input"
mkdir foreign && cp vocab.txt foreign/
expect 2 "$CAIRN_BINARY" pretrain "${recipe[@]}" "${stages[@]}" --output-dir foreign
says foreign/vocab.txt --vocab
expect 0 "$CAIRN_BINARY" pretrain "${recipe[@]}" "${stages[@]}" --dry-run --output-dir whole
same_as_alone whole
finish
