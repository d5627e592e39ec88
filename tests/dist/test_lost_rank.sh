#!/usr/bin/env bash
# A rank that dies, freezes or fails by itself: every other rank soon ends with 77 and a line that names it.
set -euo pipefail
# shellcheck source=tests/dist/ranks.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/ranks.sh"

make_tiny_bert tiny
glue=(glue --model-config tiny/config.json --vocab tiny/vocab.txt --data-dir "$sample" --do-train --do-eval
    --backend ref --batch-size 27 --max-steps 100000 --schedule constant)
peer_timeout=3 # of ranks.sh; the default, 30 s, exceeds the limit below

# under_way DIR: waits until the run there has made 3 steps
under_way() {
    wait_until 60 reached "$1" 3 || complain "$1 does not get to its third step"
}

# survivors LOST SECONDS LOG: the others end with 77 within so many seconds of $since, and name it
survivors() {
    local lost=$1 limit=$2 log=$3 r code
    for r in "${!ranks[@]}"; do
        [ "$r" = "$lost" ] && continue
        code=0
        wait "${ranks[r]}" || code=$?
        [ "$code" -eq 77 ] || complain "rank $r ended with $code instead of 77 after rank $lost was lost"
        grep -q "rank $lost on" "$log.$r" || complain "rank $r does not name rank $lost: $(tail -n 1 "$log.$r")"
    done
    [ "$((SECONDS - since))" -le "$limit" ] || complain "rank $lost lost: it took $((SECONDS - since)) s"
}

for lost in 0 2; do
    for how in KILL STOP; do
        start 3 "log$how$lost" "${glue[@]}" --output-dir "out$how$lost"
        under_way "out$how$lost"
        process=$(pgrep -P "${ranks[lost]}")
        since=$SECONDS
        kill "-$how" -- "$process"
        survivors "$lost" 25 "log$how$lost"
        kill -KILL -- "$process" 2>/dev/null || true
        wait "${ranks[lost]}" 2>/dev/null || true
    done
done

# a rank that cannot read its data names the file, the others name the rank
cp -r -- "$sample" broken && rm broken/train.tsv
meet
for r in 0 1 2; do
    data=$sample
    [ "$r" = 1 ] && data=broken
    one "$r" 3 unread "${glue[@]/$sample/$data}" --output-dir unread
done
ended 1
for r in 0 2; do
    grep -q "rank 1 on .*train.tsv" "unread.$r" || complain "rank $r does not say what rank 1 could not read"
done

finish
