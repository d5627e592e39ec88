#!/usr/bin/env bash
# Started by hand: steps without a fault, audited in full, in different settings. An audit that finds a difference in
# one of them has given a false alarm.
set -euo pipefail
case "${1:-}" in
-h | --help)
    echo "bench/clean_audits.sh [STEPS]"
    echo "Trains tiny models for STEPS (100000) clean steps in all, the same number in each of twelve settings: ranks,"
    echo "threads, precision, virtual ranks, policy, task and what is sharded. Every step is computed twice and every"
    echo "recomputed tensor is compared (--audit recompute,100%), with snapshots and checkpoints on. Prints a line for"
    echo "each setting and the sums. Exit code: 0 no alarm, 1 an alarm or a failed run."
    echo "CAIRN_BINARY is the program, CAIRN_TEST_BUILD_DIR its folder."
    exit 0
    ;;
esac
root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)
export CAIRN_TEST_BUILD_DIR=${CAIRN_TEST_BUILD_DIR:-$root/build} CAIRN_SOURCE_DIR=$root OMP_WAIT_POLICY=passive
# shellcheck source=tests/dist/ranks.sh
source "$root/tests/dist/ranks.sh"
# shellcheck disable=SC2034 # used by ranks.sh
hang_limit=86400

# ranks, threads, precision, virtual ranks, policy, task, sharded
mapfile -t settings <<'END'
1 1 fp32 0 full    glue     none
1 2 fp32 0 full    glue     none
1 1 bf16 0 full    glue     none
1 2 bf16 0 every:2 pretrain none
2 1 fp32 0 full    glue     optimizer
2 2 bf16 0 full    pretrain none
4 1 fp32 0 full    pretrain none
4 1 bf16 0 lean    glue     none
1 2 fp32 8 full    glue     none
2 1 fp32 8 full    pretrain none
4 1 fp32 8 full    glue     optimizer
1 1 bf16 8 every:2 pretrain none
END
steps=$(((${1:-100000} + ${#settings[@]} - 1) / ${#settings[@]}))

make_tiny_bert tiny
make_sample_text
make_tiny_config tiny.json
expect 0 "$CAIRN_BINARY" shards --input text --vocab vocab.txt --output-dir shards --max-seq-length 64 --dupe-factor 1
glue=(glue --do-train --model-config tiny/config.json --vocab tiny/vocab.txt --data-dir "$sample" --max-seq-length 32)
pretrain=(pretrain --model-config tiny.json --vocab vocab.txt --data-dir shards --max-seq-length 64 --optimizer lamb)
common=(--backend cpu --batch-size 8 --max-steps "$steps" --save-steps $((steps / 3 + 1)) --keep 1 --snapshot-steps 1
    --audit "recompute,100%" --digest-steps 100)
clean=0 alarms=0
for setting in "${settings[@]}"; do
    read -r n threads precision v policy task shard <<<"$setting"
    flags=(--precision "$precision" --recompute "$policy" --shard "$shard" --output-dir run)
    if [ "$v" -gt 0 ]; then flags+=(--virtual-ranks "$v" --grain-tokens 96); fi
    command=("${glue[@]}")
    if [ "$task" = pretrain ]; then command=("${pretrain[@]}"); fi
    began=$SECONDS
    start "$n" log "${command[@]}" "${common[@]}" "${flags[@]}"
    ended 0
    found=0
    if [ -e run/audit.jsonl ]; then found=$(wc -l <run/audit.jsonl) && cat run/audit.jsonl; fi
    grep -q "$steps of them computed twice, 0 differences" log.0 || complain "$setting: $(tail -n 3 log.0)"
    made=$(steps_in run)
    clean=$((clean + made)) alarms=$((alarms + found))
    printf '%s rank(s), %s thread(s), %s, %s virtual, %s, %s, sharded %s: %d clean steps, %d alarms, %d s\n' \
        "$n" "$threads" "$precision" "$v" "$policy" "$task" "$shard" "$made" "$found" $((SECONDS - began))
    rm -rf run log.*
done
echo "$clean clean steps, $alarms false alarms"
[ "$clean" -ge "${1:-100000}" ] || complain "$clean steps were made"
[ "$alarms" -eq 0 ] || complain "$alarms false alarms"
finish
