#!/usr/bin/env bash
# A rank that gets less processor time than the others is the one that the run and `cairn variability` name.
set -euo pipefail
# shellcheck source=tests/dist/ranks.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/ranks.sh"

make_tiny_bert bert
small_data 80
run=(glue --task MNLI --data-dir data --model-config bert/config.json --vocab bert/vocab.txt --do-train
    --max-seq-length 32 --batch-size 8 --backend ref --save-every off --snapshot-steps 0)

# Rank 1 sleeps in each step for nine times as long as it works, and 50 ms at least, as under a quota.
touch "${CAIRN_TEST_SLOW}1"
start 2 log "${run[@]}" --max-steps 103 --output-dir slowed
ended 0
grep -q "the others waited for rank 1 on " log.0 || complain "the run does not name rank 1: $(grep waited log.0)"
grep -q "the others wait for rank 1 on " log.0 || complain "rank 1 is not named after 100 steps"
grep -q '"waited_for": "rank 1 on ' slowed/run.json || complain "run.json: $(head -c 2000 slowed/run.json)"
grep -q 'waited_for.*rank 1 on ' slowed/report.html || complain "report.html does not name rank 1"
[ "$(grep -c '"own_s"' slowed/ranks.jsonl)" -eq 2 ] || complain "ranks.jsonl: $(cut -c1-200 slowed/ranks.jsonl)"
expect 0 "$CAIRN_BINARY" variability slowed --output-dir shown --csv shown.csv
says "slow: slowed rank 1 on " "a quota, or a neighbour on its cores"
grep -q "slow: slowed rank 0" <<<"$output" && complain "rank 0 is named too: $output"
has_file shown/variability.svg shown/variability.html
grep -q '^slowed,1,.*,slow' shown.csv || complain "shown.csv: $(cat shown.csv)"
grep -q '^slowed,0,.*,.$' shown.csv || complain "shown.csv: $(cat shown.csv)"
files=$(find . | sort)
expect 0 "$CAIRN_BINARY" variability slowed
says "slow: slowed rank 1 on "
[ "$(find . | sort)" = "$files" ] || complain "without --output-dir files were written: $(find . -newer shown.csv)"

# One rank has no others to wait for; runs are compared with each other.
expect 0 "$CAIRN_BINARY" "${run[@]}" --max-steps 12 --output-dir alone
expect 0 "$CAIRN_BINARY" variability alone slowed --output-dir both
says "alone" "the runs differ in their work" "slow: slowed rank 1"
if grep -qE 'slow: (alone|slowed rank 0)' <<<"$output"; then complain "ranks of other work are compared: $output"; fi
# A tenth more is slow where steps are alike, and not where they vary by more than the ranks differ.
pace() { # RANK SECONDS SECONDS: of its steps by turns
    local own="$2, $3"
    for _ in {1..19}; do own+=", $2, $3"; done
    echo "{\"rank\": $1, \"host\": \"there\", \"threads\": 1, \"steps\": 40, \"seconds\": $(awk "BEGIN { print 20 * ($2 + $3) }"), \"waited_s\": 0, \"own_s\": [$own]}"
}
cp -r alone alike
{ pace 0 1 1 && pace 1 1.1 1.1; } >alike/ranks.jsonl
expect 0 "$CAIRN_BINARY" variability alike --output-dir both
says "slow: alike rank 1 on there: 1.10 times"
{ pace 0 1 1 && pace 1 0.1 2.1; } >alike/ranks.jsonl
expect 0 "$CAIRN_BINARY" variability alike --output-dir both
says "no rank is slow"
cp -r alone empty && : >empty/ranks.jsonl
expect 1 "$CAIRN_BINARY" variability empty --output-dir both
says "empty/ranks.jsonl: empty"
echo '{' >empty/ranks.jsonl
expect 1 "$CAIRN_BINARY" variability empty --output-dir both
says "empty/ranks.jsonl: line 1, column"
expect 1 "$CAIRN_BINARY" variability bert --output-dir both
says "expected the folder of a run with ranks.jsonl"
expect 2 "$CAIRN_BINARY" variability
says "cairn variability DIR1 DIR2"
finish
