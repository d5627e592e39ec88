#!/usr/bin/env bash
# cairn verify: a run's steps computed again agree, from its start and from a checkpoint; a changed record, a changed
# state and other data do not. --audit on one rank. Nothing is written.
set -euo pipefail
# shellcheck source=tests/scripts/lib.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"

export XDG_CACHE_HOME=$work/cache
make_tiny_bert tiny
cp -r -- "$sample" data
glue=("$CAIRN_BINARY" glue --model-config tiny/config.json --vocab tiny/vocab.txt --data-dir data --do-train --do-eval
    --backend cpu --batch-size 9 --max-seq-length 32 --threads 1)
expect 0 "${glue[@]}" --output-dir run --max-steps 6 --save-steps 2 --keep 9 --digest-steps 3 --recompute full
listing() { (cd run && find . -type f -exec md5sum {} + | sort); }
listing >before

expect 0 "$CAIRN_BINARY" verify run
says "run: 6 steps computed again, up to step 6; all agree, as do 3 checkpoints"
expect 0 "$CAIRN_BINARY" verify run --steps 5-6
says "run: 2 steps computed again, up to step 6; all agree" "checkpoint-4"
expect 0 "$CAIRN_BINARY" verify run --steps 3
says "run: 1 steps computed again, up to step 3; all agree; there is no checkpoint of these steps"
for steps in 0 7 5-4 x 3-; do
    expect 2 "$CAIRN_BINARY" verify run --steps "$steps"
    says "within the recorded steps 1 to 6"
done
listing | cmp -s - before || complain "verify has written: $(listing | diff - before)"

# a digest, a loss, a state
cp -r run changed
sed -i '/"step": 3,/s/"weights_digest": "[0-9a-f]/"weights_digest": "x/' changed/metrics.jsonl
expect 78 "$CAIRN_BINARY" verify changed
says "changed: step 3 is the first that differs: the digest of the weights was" "2 steps before it agree"
sed -i '/"step": 2,/s/"loss": /"loss": 9/' changed/metrics.jsonl
expect 78 "$CAIRN_BINARY" verify changed
says "step 2 is the first that differs: the loss was 9"
sed -i '/"step": 1,/s/"loss": [^,]*, //' changed/metrics.jsonl
expect 78 "$CAIRN_BINARY" verify changed
says "step 1 is the first that differs: the loss was missing"
sed -i '1s/}$//' changed/metrics.jsonl
expect 1 "$CAIRN_BINARY" verify changed
says "changed/metrics.jsonl: line 1, column"
cp -r run short && sed -i 4q short/metrics.jsonl
expect 0 "$CAIRN_BINARY" verify short
says "up to step 4; all agree"

# damaged checkpoints are counted in the last line
cp -r run torn
for step in 2 4; do
    printf x | dd of="torn/checkpoint-$step/optimizer.safetensors" bs=1 seek=9999 conv=notrunc status=none
    expect 0 "$CAIRN_BINARY" verify torn
    says "checkpoint-$step/optimizer.safetensors" ": it is not compared"
    case $step in
    2) says "all agree, as do 2 checkpoints; 1 checkpoint is damaged and was not compared" ;;
    4) says "all agree, as does 1 checkpoint; 2 checkpoints are damaged and were not compared" ;;
    esac
done
expect 0 "$CAIRN_BINARY" verify torn --steps 3-4
says "up to step 4; all agree; 2 checkpoints are damaged and were not compared"

# of a run that was stopped: its checkpoint has the options
cp -r run stopped && rm stopped/run.json
expect 0 "$CAIRN_BINARY" verify stopped --steps 6
says "2 steps computed again"

# options of another version, and those of a run that neither evaluates nor has many ranks here
cp -r run later && sed -i 's/"batch-size"/"batch-weight"/' later/run.json
expect 2 "$CAIRN_BINARY" verify later
says "later: the options that Cairn" "recorded: unknown option 'batch-weight'"
sed -i 's/"format": 1/"format": 2/' later/run.json
for command in verify report; do
    expect 1 "$CAIRN_BINARY" "$command" later
    says "later/run.json: expected a run.json of format 1, found format 2"
done
expect 0 "${glue[@]}" --output-dir patient --max-steps 4 --eval-every 2 --patience 1
expect 0 "$CAIRN_BINARY" verify patient
says "4 steps computed again"
if grep -q 'without effect' <<<"$output"; then complain "verify warns of options that nobody gave: $output"; fi

# options that were changed on the way
cp -r run overridden && rm -r overridden/run.json overridden/checkpoint-6
expect 0 "${glue[@]}" --output-dir overridden --max-steps 6 --save-steps 2 --keep 9 --digest-steps 3 --recompute full --learning-rate 1e-3 --override
expect 2 "$CAIRN_BINARY" verify overridden
says "overridden: step 1 was made with the learning rate" "they were changed later (--override)"
expect 0 "$CAIRN_BINARY" verify overridden --steps 5-6
says "2 steps computed again"

# other data, moved data
cp -r data elsewhere
expect 0 "$CAIRN_BINARY" verify run --steps 5-6 --data-dir elsewhere
sed -i '$d' data/train.tsv
expect 2 "$CAIRN_BINARY" verify run
says "its data was"
expect 2 "$CAIRN_BINARY" verify nothing
says "expected the output folder of a run"
expect 2 "$CAIRN_BINARY" verify
mv elsewhere/train.tsv data/train.tsv

# ---- --audit on one rank ----
audited() { expect "$1" "${glue[@]}" --max-steps 6 --recompute full "${@:2}"; }
instr=$("$CAIRN_BINARY" plan --model-config tiny/config.json --backend cpu --threads 1 --recompute full \
    --audit recompute --max-seq-length 32 --batch-size 9 --explain 2>/dev/null |
    awk '$2 == "recompute" && / linear +l0.pre/ && !n++ { print $1 }')
audited 0 --output-dir quiet --audit recompute,50%
says "50 % of the steps are computed twice, both times here" "0 differences"
cmp -s run/model.safetensors quiet/model.safetensors || complain "the audit changed the weights"
[ ! -e quiet/audit.jsonl ] || complain "a false alarm: $(cat quiet/audit.jsonl)"
export CAIRN_TEST_FLIP="0 5 1 $instr 0 777777"
audited 0 --output-dir once --audit recompute
says "step 5, attempt 1: a machine computes wrongly. rank 0 on" "instr $instr (linear l0.pre') made tensor 'l0.pre''"
cmp -s run/model.safetensors once/model.safetensors || complain "the repeated step has other bits"
export CAIRN_TEST_FLIP="0 5 2 $instr 0 777777"
audited 77 --output-dir twice --audit recompute --save-every off
says "step 5: rank 0 on" "computed wrongly twice" "The state of step 4 is saved in twice"
has_file twice/audit-report.txt twice/checkpoint-4/manifest.json
grep -q "attempt 2, rank 0 on .*linear l0.pre'" twice/audit-report.txt || complain "the report: $(cat twice/audit-report.txt)"
unset CAIRN_TEST_FLIP
audited 0 --output-dir unseen --audit recompute --recompute none
says "makes no tensor twice, so nothing is compared"
audited 77 --output-dir twice
says "local rank 0 on" "is excluded from this run" "remove that file"
rm twice/audit-report.txt
audited 0 --output-dir twice
cmp -s run/model.safetensors twice/model.safetensors || complain "the resumed run has other bits"
export CAIRN_TEST_FLIP="0 4 v 40 7"
audited 78 --output-dir damaged --audit 100% --save-steps 1 --keep 9
says "step 4, attempt 1: memory is damaged. rank 0 on" "'v' changed in memory since the last update, from element 0 on"
unset CAIRN_TEST_FLIP
# The run makes step 3 again and is killed behind it. The new state of step 3 is good, and the next start takes it.
CAIRN_TEST_AT="step5-0=kill" audited 137 --output-dir damaged --save-steps 1 --keep 9
says "the states of steps 3 to 3 may be damaged: they are set aside" "resuming from damaged/checkpoint-2"
has_file damaged/checkpoint-3.damaged/manifest.json damaged/checkpoint-3/manifest.json
[ ! -e damaged/damaged.json ] || complain "damaged.json is left"
audited 0 --output-dir damaged
grep -q "resuming from damaged/checkpoint-[34]:" <<<"$output" || complain "a good state is not taken: $output"
cmp -s run/model.safetensors damaged/model.safetensors || complain "the run resumed behind the damage has other bits"
audited 2 --output-dir bad --audit 50%,20%
says "--audit '50%,20%': expected"
audited 2 --output-dir bad --audit sometimes
says "--audit 'sometimes': expected off, recompute"

finish
