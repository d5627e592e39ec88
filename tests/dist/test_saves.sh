#!/usr/bin/env bash
# Each rank writes what it owns into the checkpoint, and rank 0 what those own that do not see its folder: the files have
# the same bytes. A part that fails, a rank that is killed while it writes, and a stop meanwhile. Without room for a save
# buffer beside the activations, ranks run another plan while their parts are written.
set -euo pipefail
# shellcheck source=tests/dist/ranks.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/ranks.sh"

make_tiny_bert tiny
small_data 60
glue=(glue --model-config "$work/tiny/config.json" --vocab "$work/tiny/vocab.txt" --data-dir "$work/data" --do-train
    --batch-size 12 --bucket-size 20KiB --snapshot-steps 0 --backend ref --save-steps 2 --keep 9)

# apart N LOG COMMAND...: as start, but ranks from 1 on are in another folder, in which their --output-dir is another one
apart() {
    local n=$1 log=$work/$2 r
    shift 2
    mkdir -p away
    meet "$n"
    for ((r = 0; r < n; r++)); do
        [ "$r" -eq 0 ] || cd "$work/away"
        one "$r" "$n" "$log" "$@"
        cd "$work"
    done
}

# wrote LOG RANK STEP: the bytes of its part
wrote() { sed -n "s/.*checkpoint-$3: this rank wrote \([0-9]*\) bytes .*/\1/p" "$1.$2"; }
# save_mib LOG: the plan's region of the save buffer, in tenths of a MiB
save_mib() { sed -n 's/^.* save  *\([0-9]*\)\.\([0-9]\) MiB$/\1\2/p' "$1" | head -n 1; }

for case in "3" "2 --shard optimizer" "2 --pipeline 1f1b --kfac-interval 2" \
    "4 --pipeline chimera --stages 2 --shard optimizer" $(quick_or_deep "" "4|--kfac-interval|1 3|--pipeline|zb-h1"); do
    read -r n flags <<<"${case//|/ }"
    read -ra flags <<<"$flags"
    start "$n" shared "${glue[@]}" --max-steps 3 --output-dir shared "${flags[@]}"
    ended 0
    apart "$n" apart "${glue[@]}" --max-steps 3 --output-dir apart "${flags[@]}"
    ended 0
    all=0
    for ((r = 0; r < n; r++)); do
        bytes=$(wrote shared "$r" 3)
        [ "${bytes:-0}" -gt 0 ] || complain "$case: rank $r wrote no part"
        all=$((all + bytes))
    done
    size=$(find shared/checkpoint-3 -name "*.safetensors" -printf "%s\n" | awk "{ n += \$1 } END { print n }")
    [ $((all * 9)) -lt $((size * 10)) ] || complain "$case: $n ranks wrote $all bytes of $size"
    grep -q "$((n - 1)) of $n ranks do not see rank 0's apart" apart.0 || complain "$case: the folders count as one"
    [ "$(save_mib shared.0)" -lt "$(save_mib apart.0)" ] || complain "$case: rank 0 has room for the whole state"
    [ ! -e away/apart ] || complain "$case: a rank that does not see the folder wrote into its own"
    for step in 2 3; do
        for file in model optimizer kfac; do
            [ -e "shared/checkpoint-$step/$file.safetensors" ] || [ "$file" = kfac ] || complain "$case: no $file"
            [ ! -e "shared/checkpoint-$step/$file.safetensors" ] ||
                cmp {shared,apart}/checkpoint-"$step/$file.safetensors" || complain "$case: step $step, $file"
        done
    done
    [ -z "$(find shared apart -name '*.tmp*')" ] || complain "$case: files are left"
    rm -r shared apart away
done

start 3 whole "${glue[@]}" --max-steps 6 --output-dir whole
ended 0

# a part that cannot be written: the save fails, and training goes on
for rank in 0 2; do
    CAIRN_TEST_FULL="2 $rank" start 3 full "${glue[@]}" --max-steps 6 --output-dir full
    ended 0
    who=$([ "$rank" -eq 0 ] || echo "rank $rank on .*: ")
    grep -q "checkpoint-2 could not be saved, earlier checkpoints stay: ${who}full: cannot write: No space left" full.0 ||
        complain "rank $rank: $(grep checkpoint full.0)"
    [ "$(cd full && echo checkpoint-*)" = "checkpoint-4 checkpoint-6" ] || complain "rank $rank: $(ls full)"
    same whole full 6
    rm -r full
done

# a rank is killed while it writes its part: the save is given up, and the survivors save
for rank in 0 2; do
    CAIRN_TEST_AT="part2-$rank=kill" start 3 killed "${glue[@]}" --max-steps 6 --output-dir killed
    for r in 0 1 2; do
        code=0
        wait "${ranks[r]}" || code=$?
        [ "$code" -eq $((r == rank ? 137 : 77)) ] || complain "rank $rank is killed: rank $r ended with $code"
    done
    [ -z "$(find killed -name '*.tmp')" ] || complain "rank $rank is killed: $(ls killed)"
    start 3 killed "${glue[@]}" --max-steps 6 --output-dir killed
    ended 0
    grep -q "resuming from killed/checkpoint-" killed.0 || complain "rank $rank is killed: nothing was saved"
    same whole killed 6
    rm -r killed
done

# a stop while a part is written: the run ends once the save of its last step is whole
CAIRN_TEST_AT="part2-1=stop" start 3 stopped "${glue[@]}" --max-steps 6 --output-dir stopped
# shellcheck disable=SC2317 # by wait_until
begun() { pid=$(pgrep -P "${ranks[1]}"); }
wait_until "$hang_limit" begun
wait_until "$hang_limit" stopped "$pid" || complain "rank 1 wrote no part"
kill -TERM "$(pgrep -P "${ranks[0]}")"
kill -CONT "$pid"
ended 75
[ -e stopped/checkpoint-2/manifest.json ] || complain "the save that ran was not ended: $(ls stopped)"
start 3 stopped "${glue[@]}" --max-steps 6 --output-dir stopped
ended 0
same whole stopped 6

# ---- another plan while parts are written ----

{ cat tiny/vocab.txt && seq 100001 $((116000 - $(wc -l <tiny/vocab.txt))); } >wide.txt
sed 's/"vocab_size": [0-9]*, "hidden_size": 32, "num_hidden_layers": 2/"vocab_size": 16000, "hidden_size": 64, "num_hidden_layers": 4/' \
    tiny/config.json >wide.json
wide=(glue --model-config "$work/wide.json" --vocab "$work/wide.txt" --data-dir "$work/data" --do-train --padded
    --batch-size 32 --max-seq-length 128 --max-steps 12 --snapshot-steps 0 --backend cpu --precision fp32 --save-steps 4
    --keep 9 --shard optimizer --recompute auto)
start 2 room "${wide[@]}" --output-dir room
ended 0
# The save buffer of this rank does not fit by as much as it takes.
budget=$(awk '$1 == "peak" { p = $2 } $1 == "save" { s = $2 } END { print int(p - s) }' room.0)
wide+=(--memory-budget "${budget}MiB")

# same_saves DIR STEP...: as those of the run with room for both
same_saves() {
    local dir=$1 step file
    shift
    for step in "$@"; do
        for file in model optimizer; do
            cmp {room,"$dir"}/checkpoint-"$step/$file.safetensors" || complain "$dir: step $step, $file"
        done
    done
    cmp <(losses room) <(losses "$dir") || complain "$dir: the losses differ"
}
# changes LOG: steps at which this rank changed its plan, to the one for saves and back
changes() { sed -n 's/.*step \([0-9]*\): steps run by recompute .*)\( while\)*.*/\1\2/p' "$1" | tr '\n' ' '; }

export CAIRN_TEST_HOLD=$work/hold # of rank 1's part
touch hold1
start 2 held "${wide[@]}" --output-dir held
wait_until "$hang_limit" reached held 7 || complain "training waits for rank 1's part"
rm hold1
ended 0
grep -q "; while a save is written recompute auto (" held.0 || complain "no plan for saves: $(grep plan: held.0)"
! grep -q "training will wait" held.0 || complain "rank 0 has no save buffer"
[[ $(changes held.1) =~ ^4\ while\ ([0-9]+)\ (.*\ 12\ )?$ && ${BASH_REMATCH[1]} -ge 7 ]] ||
    complain "rank 1 changed its plan: $(changes held.1)"
same_saves held 4 8 12

# killed in the middle of such a save, it resumes from the one before
CAIRN_TEST_AT=step6-0=term start 2 resumed "${wide[@]}" --output-dir resumed
ended 75
touch hold1
start 2 resumed "${wide[@]}" --output-dir resumed
wait_until "$hang_limit" reached resumed 10 || complain "training waits for rank 1's part"
lose 1
rm hold1
[ ! -e resumed/checkpoint-8 ] || complain "a save without rank 1's part is there"
start 2 resumed "${wide[@]}" --output-dir resumed
ended 0
same_saves resumed 8 12

finish
