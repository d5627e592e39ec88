#!/usr/bin/env bash
# A run says what it will do in at most six lines: data, weights, plan, output. --verbose and --dry-run have the table of
# its memory.
set -uo pipefail
# shellcheck source=tests/scripts/lib.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"

make_tiny_bert tiny
mkdir data own squad
for split in train dev_matched dev_mismatched; do head -n 41 "$sample/$split.tsv" >"data/$split.tsv"; done
for split in train dev; do printf 'text,label\na nice day,yes\na bad night,no\nrain,no\n' >"own/$split.csv"; done
cp "$source_dir/tests/golden/squad/"{train,dev}-v1.1.json squad
sed 's/$/\n/' <(cut -f9 data/train.tsv) >text.txt
tiny=(--model-config tiny/config.json --vocab tiny/vocab.txt --max-seq-length 64)
steps=(--do-train --do-eval --max-steps 2 --log-every 1)
table='^  (weights|activations|peak|process) +[0-9.]+ MiB'

# begins END COMMAND...: at most six lines before one that begins with END, without warnings. Stages of `adapt` and their
# ranks are not counted: they end with a rate.
begins() {
    local n
    expect 0 "$CAIRN_BINARY" "${@:2}"
    n=$(awk -v end="^$1" '$0 ~ end { seen = 1; exit } /warning: / { next } /MB of text per second/ { n = 0; next } { n++ }
        END { print seen ? n : "no end in" }' "$work/.stderr")
    if [[ $n != [2-6] ]]; then complain "$n lines at the start: ${*:2}" && cat "$work/.stderr"; fi
    if grep -qE "$table" "$work/.stderr"; then complain "${*:2}: the table of memory is there"; fi
}

for launch in "" "launch --ranks 2 --"; do
    # shellcheck disable=SC2086 # words
    set -- $launch
    out=results${launch:+2}
    begins step= "$@" glue --data-dir data "${tiny[@]}" "${steps[@]}" --output-dir "$out/mnli"
    says "train.tsv: 40 examples" "dev_mismatched.tsv: 40 examples" "plan: recompute none" "a peak of" \
        "training: 2 steps of 32 sequences; the model and the results go to $out/mnli"
    begins step= "$@" glue --task custom --data-dir own --text-columns text --label-column label --model "$out/mnli" \
        "${steps[@]}" --output-dir "$out/own"
    says "weights: " "2 new, initialised at random: classifier.weight, classifier.bias"
    begins dev "$@" glue --task custom --data-dir own --model "$out/own" --do-eval --output-dir "$out/evaluated"
    says "evaluation; the results go to $out/evaluated"
    begins step= "$@" squad --data-dir squad --model "$out/mnli" --max-seq-length 64 --max-query-length 16 --doc-stride 16 \
        "${steps[@]}" --output-dir "$out/squad"
    begins step= "$@" adapt --input text.txt --model "$out/mnli" --eval-fraction 0.2 "${steps[@]}" --output-dir "$out/adapted"
    begins step= "$@" pretrain --data-dir "$out/adapted/shards" --eval-dir "$out/adapted/shards/eval" "${tiny[@]}" --nsp off \
        "${steps[@]}" --output-dir "$out/pretrained"
    begins "[0-9]* texts in" "$@" predict --model "$out/own" --input own/dev.csv --output "$out.csv"
done

for more in --verbose --dry-run; do
    expect 0 "$CAIRN_BINARY" glue --data-dir data "${tiny[@]}" "${steps[@]}" --output-dir more "$more"
    [ "$(grep -cE "$table" "$work/.stderr")" -eq 4 ] || complain "$more: no table of memory"
done
finish
