#!/usr/bin/env bash
# What has the name of a file and is none, as a named pipe: refused by name at once, for a read from one would wait for
# ever. A pipe that the shell makes for a flag is read.
set -euo pipefail
# shellcheck source=tests/scripts/lib.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"

make_tiny_bert tiny
mkdir data memory
for split in train dev_matched dev_mismatched; do head -n 21 "$sample/$split.tsv" >"data/$split.tsv"; done
train=("$CAIRN_BINARY" glue --do-train --do-eval --data-dir data --model-config tiny/config.json --vocab tiny/vocab.txt
    --max-seq-length 16 --threads 1 --batch-size 8 --max-steps 1 --snapshot-dir memory --snapshot-steps 1 --output-dir out)
expect 0 "${train[@]}"
mv out made

# refused FILE COMMAND...: with a named pipe and with a device in place of FILE.
refused() {
    local file=$1 what
    shift
    for what in "named pipe" device; do
        rm -rf out && cp -r made out && rm -f -- "$file"
        if [ "$what" = device ]; then ln -s /dev/zero "$file"; else mkfifo "$file"; fi
        expect 1 "$@"
        says "error: $file: expected a regular file, found a $what"
        rm -f -- "$file"
    done
}
# -- in the output folder
for file in metrics.jsonl eval.jsonl .run .lock; do refused "out/$file" "${train[@]}" --max-steps 2 --override; done
for file in run.json metrics.jsonl eval.jsonl faults.jsonl launches.jsonl; do refused "out/$file" "$CAIRN_BINARY" report out; done
refused out/ranks.jsonl "$CAIRN_BINARY" variability out
refused out/run.json "$CAIRN_BINARY" verify out
refused out/config.json "$CAIRN_BINARY" predict --model out --input data/train.tsv
refused out/model.safetensors "$CAIRN_BINARY" inspect --model out
mkfifo out/audit.jsonl # not read here
expect 0 "$CAIRN_BINARY" report out
# -- in the data folder
cp -r data other
refused other/train.tsv "${train[@]}" --data-dir other

# -- by a flag
for flag in config vocab model model-config; do refused given "${train[@]}" --resume never --"$flag" given; done
for flag in lengths costs; do refused given "$CAIRN_BINARY" plan --model-config tiny/config.json --"$flag" given; done
refused given "$CAIRN_BINARY" launch --hosts given -- glue
refused given "$CAIRN_BINARY" vocab --input given --output made.txt
mkfifo unread
for command in "plan --model-config tiny/config.json --svg" "report made --csv"; do
    # shellcheck disable=SC2086 # words
    expect 1 "$CAIRN_BINARY" $command unread
    says "unread: expected a regular file, found a socket or a pipe that nobody reads"
done

# -- pipes of the shell, and standard input and output
echo '{"learning-rate": 0.25}' >options.json
expect 0 "$CAIRN_BINARY" glue --config <(cat options.json) --print-config
says '"learning-rate": 0.25'
# shellcheck disable=SC2016 # by the shell below
expect 0 bash -c 'cat options.json | "$CAIRN_BINARY" glue --config /dev/stdin --print-config'
says '"learning-rate": 0.25'
predict=("$CAIRN_BINARY" predict --model made --text-columns "sentence1,sentence2" --threads 1)
expect 0 "${predict[@]}" --input data/train.tsv
cp .stdout whole
expect 0 "${predict[@]}" --input <(cat data/train.tsv)
cmp .stdout whole || complain "a pipe's texts get other labels"
# shellcheck disable=SC2016
for input in - /dev/stdin; do expect 0 bash -c 'cat data/train.tsv | "$@"' bash "${predict[@]}" --input $input; done
cmp .stdout whole || complain "texts of standard input get other labels"
expect 0 "$CAIRN_BINARY" plan --model-config tiny/config.json --svg /dev/stdout
says "<svg"
finish
