#!/usr/bin/env bash
# Random faults, most of them kills of a random rank, in pipelines of all six schedules, two of them with a sharded
# optimizer, half of them with K-FAC: the same command resumes, loses few steps, and ends with the weights, moments,
# inverses, losses and results of ranks without a pipeline and without a fault, to the last bit. CAIRN_TEST_FAULTS:
# number of faults (2; 60 under `test.sh deep`), CAIRN_TEST_SECONDS: none begins after that time, CAIRN_TEST_STEPS: of
# a run, CAIRN_TEST_SEED.
# shellcheck source=tests/dist/faults_lib.sh
. "$(dirname -- "${BASH_SOURCE[0]}")/faults_lib.sh"

most_faults=${CAIRN_TEST_FAULTS:-$(quick_or_deep 2 60)} steps=${CAIRN_TEST_STEPS:-$(quick_or_deep 20 60)}
make_case
sed -i 's/"num_hidden_layers": 2/"num_hidden_layers": 4/' config.json
run=("${task[@]}" --max-steps "$steps" --batch-size 8 --micro-batch-tokens 64 "${patient[@]}"
    --schedule constant --warmup 0)
kfac=(--kfac-interval 5 --kfac-lag 3)

# Ranks, replicas, flags.
cases=("4 2 1f1b --stages 2 --shard optimizer" "2 1 gpipe" "2 1 1f1b" "2 1 interleaved" "2 2 chimera" "2 1 zb-h1" "2 1 zb-v"
    "4 2 zb-h1 --stages 2" "2 2 chimera --shard optimizer")
end=$((SECONDS + ${CAIRN_TEST_SECONDS:-100000})) first=$(quick_or_deep 0 $((RANDOM % ${#cases[@]})))
while [ "$faults" -lt "$most_faults" ] && [ "$SECONDS" -lt "$end" ] && [ "$failures" -le 5 ]; do
    read -r n replicas flags <<<"${cases[(first + rounds) % ${#cases[@]}]}"
    with=()
    if [ $(((first + rounds) / ${#cases[@]} % 2)) -eq 1 ]; then with=("${kfac[@]}"); fi
    whole=whole$replicas${with[0]:-} out=out$rounds
    [ -d "$whole" ] || quiet "$replicas" "$whole" "${run[@]}" "${with[@]}" --snapshot-steps 0
    # shellcheck disable=SC2086 # a schedule and its options
    faulty "$n" "$out" 3 "${run[@]}" "${with[@]}" --pipeline $flags
    same_run "$whole" "$out" "$steps"
    if [ "${#with[@]}" -gt 0 ]; then
        cmp -s "$whole/checkpoint-$steps/kfac.safetensors" "$out/checkpoint-$steps/kfac.safetensors" || complain "$out has other inverses than $whole"
    fi
    [ "$failures" -eq 0 ] || echo "$out: $n ranks, $flags ${with[*]}"
    rm -rf -- "$out"
done
summary
exit $((failures > 0))
