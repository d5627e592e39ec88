#!/usr/bin/env bash
# Two ranks on two hosts of this machine's own making (network namespaces) with links of a known rate and delay: what
# `cairn plan --ranks` predicts, what is measured, how much of the exchange hides behind backward.
set -euo pipefail
source_dir=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)
export CAIRN_BINARY=${CAIRN_BINARY:-$source_dir/build/cairn} CAIRN_BACKEND_DIR=${CAIRN_BACKEND_DIR:-$source_dir/build}

usage() {
    cat <<'END'
ranks.sh [--steps N] [--model NAME|FILE] [--sequences N] [--rounds N]     (as root: it makes network namespaces)

  --steps N      steps of each run; the first is left out (default 6)
  --model NAME   bert-tiny, -mini, -small …, or a config.json (default bert-mini)
  --sequences N  sequences of a step on each rank, of 128 tokens (default 16)
  --rounds N     of all runs, interleaved (default 3)

Each rank computes with one thread, bound to a core of its own. Lines of JSON on the standard output.
END
}

steps=6 model=bert-mini sequences=16 rounds=3
while [ $# -gt 0 ]; do
    case $1 in
    -h | --help) usage && exit 0 ;;
    --steps) steps=$2 ;;
    --model) model=$2 ;;
    --sequences) sequences=$2 ;;
    --rounds) rounds=$2 ;;
    *) echo "unknown flag '$1'; see --help" >&2 && exit 2 ;;
    esac
    shift 2
done

if [ -z "${RANKS_INSIDE:-}" ]; then
    [ "$(id -u)" -eq 0 ] || { echo "network namespaces need root" >&2 && exit 2; }
    RANKS_INSIDE=1 exec unshare --net --mount --uts bash "${BASH_SOURCE[0]}" --steps "$steps" --model "$model" \
        --sequences "$sequences" --rounds "$rounds"
fi
work=$(mktemp -d "${TMPDIR:-/tmp}/cairn-ranks.XXXXXX")
trap 'rm -rf -- "$work"' EXIT
mkdir -p /run/netns
mount -t tmpfs tmpfs /run/netns
ip link set lo up
ip netns add h0
ip netns add h1
ip link add eth0 netns h0 type veth peer name eth0 netns h1
for host in 0 1; do
    ip -n "h$host" addr add "10.77.0.$((host + 1))/24" dev eth0
    ip -n "h$host" link set eth0 up
    ip -n "h$host" link set lo up
done

# shape RATE DELAY: both directions. Kernels without netem keep the rate alone, and $delay says so.
shape() {
    local host
    delay=$2
    for host in 0 1; do
        ip netns exec "h$host" tc qdisc replace dev eth0 root netem rate "$1" delay "$2" limit 100000 2>/dev/null ||
            { ip netns exec "h$host" tc qdisc replace dev eth0 root tbf rate "$1" burst 1mb latency 100ms && delay=0ms; }
    done
}

# The sample's words, and as many that never come as make the model as large as BERT's are.
"$CAIRN_BINARY" vocab --input "$source_dir/tasks/glue/sample/train.tsv" --size 600 --output "$work/vocab.txt" 2>/dev/null
words=$(wc -l <"$work/vocab.txt")
seq -f 'never%.0f' "$((30522 - words))" >>"$work/vocab.txt"
cores=()
for ((core = 0; core < $(nproc --all) && ${#cores[@]} < 2; core++)); do
    taskset -c "$core" true 2>/dev/null && cores+=("$core")
done
[ ${#cores[@]} -eq 2 ] || { echo "two cores are needed" >&2 && exit 2; }

# shellcheck disable=SC2016 # for the inner shell
# run N NAME [FLAG...]: N ranks; leaves seconds per step in $seconds and what rank 0 says in $work/NAME.0
run() {
    local n=$1 name=$2 r pids=()
    shift 2
    rm -rf -- "${work:?}/out"
    for ((r = 0; r < n; r++)); do
        RANK=$r WORLD_SIZE=$n LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 MASTER_ADDR=10.77.0.1 \
            MASTER_PORT=29400 ip netns exec "h$r" unshare --uts sh -c 'hostname "$1"; shift; exec "$@"' sh "h$r" \
            taskset -c "${cores[r]}" "$CAIRN_BINARY" glue --model-config "$model" --vocab "$work/vocab.txt" \
            --data-dir "$source_dir/tasks/glue/sample" --do-train --padded --backend cpu --precision fp32 --threads 1 \
            --batch-size "$((n * sequences))" --max-steps "$steps" --save-every 0 --output-dir "$work/out" "$@" \
            >"$work/$name.$r" 2>&1 &
        pids+=("$!")
    done
    for r in "${pids[@]}"; do wait "$r" || { cat "$work/$name".* >&2 && exit 1; }; done
    seconds=$(sed -n 's/.*"seq_per_s": *\([^,}]*\).*/\1/p' "$work/out/metrics.jsonl" | tail -n +2 |
        awk -v n="$((n * sequences))" '{ print n / $1 }' | sort -g | awk '{ x[NR] = $1 } END { print x[int((NR + 1) / 2)] }')
}

# plan GB/S,US KEY [FLAG...]: of two ranks
plan() {
    local network=$1 key=$2
    shift 2
    taskset -c "${cores[0]}" "$CAIRN_BINARY" plan --model-config "$model" --backend cpu --precision fp32 --threads 1 \
        --max-seq-length 128 --batch-size "$((2 * sequences))" --ranks 2 --network "$network" --json "$@" 2>/dev/null |
        sed -n "s/.*\"ranks\": 2,.*\"$key\": \([^,}]*\).*/\1/p"
}

for ((round = 1; round <= rounds; round++)); do
    run 1 alone
    alone=$seconds
    for link in "10gbit 1.17" "1gbit 0.117"; do
        read -r rate bytes <<<"$link"
        shape "$rate" 0.5ms
        network=$bytes,$([ "$delay" = 0ms ] && echo 30 || echo 530)
        for shard in none optimizer; do
            run 2 two --shard "$shard"
            hidden=$(sed -n 's/.* \([0-9]*\) % of it hidden.*/\1/p' "$work/two.0")
            exchange=$(sed -n 's/.*between ranks: \([^ ]*\) s of.*/\1/p' "$work/two.0")
            printf '{"round": %d, "rate": "%s", "delay": "%s", "shard": "%s", "alone_s": %s, "two_s": %s, ' "$round" "$rate" \
                "$delay" "$shard" "$alone" "$seconds"
            printf '"efficiency": %.4f, "predicted": %.4f, "exchange_s": %s, "predicted_exchange_s": %s, "hidden_percent": %s}\n' \
                "$(awk -v a="$alone" -v b="$seconds" 'BEGIN { print a / b }')" \
                "$(plan "$network" efficiency --shard "$shard")" "$exchange" \
                "$(plan "$network" network_s --shard "$shard")" "$hidden"
        done
    done
done
