#!/usr/bin/env bash
# Ranks with different options end before any use of them, with a message that names the option, both values and both
# ranks. Options of a single machine may differ.
set -euo pipefail
# shellcheck source=tests/dist/ranks.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/ranks.sh"

make_tiny_bert tiny
small_data 40
make_sample_text
make_tiny_config tiny.json
expect 0 "$CAIRN_BINARY" shards --input text --vocab vocab.txt --output-dir shards --max-seq-length 64 --dupe-factor 1 \
    --eval-fraction 0.2
# shellcheck disable=SC2034 # by differ
glue=(glue --model-config tiny/config.json --vocab tiny/vocab.txt --data-dir data --do-train --batch-size 4 --max-steps 3)
# shellcheck disable=SC2034 # by differ
pretrain=(pretrain --model-config tiny.json --vocab vocab.txt --data-dir shards --max-seq-length 64 --batch-size 13
    --max-steps 3)

# differ COMMAND OPTION VALUE_OF_0 VALUE_OF_1 FLAGS_OF_0 FLAGS_OF_1: both end with 2 and the message
n=0
differ() {
    local -n command=$1
    local option=$2 of_0=$3 of_1=$4 flags_of_0 flags_of_1 log=differ$((n += 1)) r
    read -r -a flags_of_0 <<<"$5"
    read -r -a flags_of_1 <<<"$6"
    meet 2
    one 0 2 "$log" "${command[@]}" "${flags_of_0[@]}" --output-dir "$log"
    one 1 2 "$log" "${command[@]}" "${flags_of_1[@]}" --output-dir "$log"
    ended 2
    for r in 0 1; do
        grep -qF -- "the ranks do not agree on $option: rank 0 has '$of_0'; rank 1 has '$of_1'" "$log.$r" ||
            complain "$option that differs is not named by rank $r: $(tail -n 3 "$log.$r")"
    done
    [ ! -e "$log/metrics.jsonl" ] || complain "$option differs, and steps were made"
}
differ glue --resume auto never "" "--resume never"
differ glue --do-eval true false "--do-eval" ""
differ glue --override false true "" "--override"
differ glue --dry-run false true "" "--dry-run"
differ glue --shard none optimizer "" "--shard optimizer"
differ glue --eval-every 0 2 "--do-eval" "--do-eval --eval-every 2"
differ glue --model "" nowhere "" "--model nowhere"
differ glue --pipeline none 1f1b "" "--pipeline 1f1b"
differ glue --stages 0 1 "--pipeline 1f1b" "--pipeline 1f1b --stages 1"
differ glue --kfac-interval 0 10 "" "--kfac-interval 10"
differ pretrain --eval-dir "" shards/eval "" "--eval-dir shards/eval"
differ pretrain --input "" text "" "--input text"
# One rank is also invalid by itself: the others do not wait for it.
differ glue --eval-every 0 2 "" "--eval-every 2"

# Invalid on all ranks in the same way: each prints the error.
start 2 wrong "${glue[@]}" --eval-every 2 --output-dir wrong
ended 2
for r in 0 1; do grep -q -- "give --do-eval too" "wrong.$r" || complain "rank $r does not say what is wrong"; done

# Options that may differ. (ranks.sh gives all --threads 1.)
cp -r -- data elsewhere
cp -- tiny/vocab.txt words.txt
meet 2
one 0 2 own "${glue[@]}" --output-dir own --log-every 1 --keep 2
one 1 2 own "${glue[@]/#data/elsewhere}" --output-dir own --iface lo --backend cpu --memory-budget 8GiB
ended 0
[ "$(losses own | wc -l)" -eq 3 ] || complain "options that may differ: $(losses own | wc -l) steps"
finish
