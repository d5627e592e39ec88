# Shared by the tests of snapshots: a tiny task that trains fast, and comparisons of runs.
# shellcheck shell=bash
# shellcheck source=tests/scripts/lib.sh
. "$(dirname -- "${BASH_SOURCE[0]}")/../scripts/lib.sh"
# shellcheck source=tests/dist/rendezvous.sh
. "$(dirname -- "${BASH_SOURCE[0]}")/rendezvous.sh"

memory=$(mktemp -d "/dev/shm/cairn-test-XXXXXX" 2>/dev/null || mktemp -d "$work/memory-XXXXXX")
trap 'rm -rf -- "$work" "$memory"' EXIT

# A tiny task: train.tsv, dev_*.tsv, config.json, vocab.txt in the current folder.
make_case() {
    head -n 64 "$sample/train.tsv" >train.tsv
    head -n 12 "$sample/dev_matched.tsv" >dev_matched.tsv
    head -n 12 "$sample/dev_mismatched.tsv" >dev_mismatched.tsv
    cat >config.json <<'END'
{"vocab_size": 200, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32,
 "max_position_embeddings": 32}
END
    "$CAIRN_BINARY" vocab --input train.tsv --output vocab.txt --size 200 2>/dev/null
}

# shellcheck disable=SC2034 # used by the tests
# The command of every run here, without its number of steps.
task=(glue --data-dir . --model-config config.json --vocab vocab.txt --do-train --do-eval --backend ref --threads 1
    --max-seq-length 32 --batch-size 4 --learning-rate 1e-3 --save-every 1h --snapshot-dir "$memory")

# same_run A B STEPS: complains unless weights, moments, losses and results are equal, to the last bit.
same_run() {
    local file
    for file in model.safetensors eval_results.json "checkpoint-$3/model.safetensors" \
        "checkpoint-$3/optimizer.safetensors"; do
        cmp -s -- "$1/$file" "$2/$file" || complain "$1/$file and $2/$file differ"
    done
    [ "$(losses "$1")" = "$(losses "$2")" ] || complain "the losses of $1 and $2 differ"
}

# pause MS: sleeps for a random part of MS milliseconds. RANDOM is seeded, but the run's timing varies.
RANDOM=${CAIRN_TEST_SEED:-4711}
pause() { sleep "$(printf '0.%03d' $((RANDOM % $1)))"; }

snapshots_left() { find "$memory" -mindepth 1 -name 'cairn-*' | wc -l; }

# await COMMAND...: as wait_until; complains if that never comes.
await() {
    wait_until "$hang_limit" "$@" && return
    complain "waited in vain for: $*"
    tail -n 20 log* 2>/dev/null
}

# The first of the ports of this test, where ranks meet by tcp: two tests that meet at the same ones take ranks of each
# other.
port=$((23000 + $$ % 1220 * 8))

# start_ranks N LOG COMMAND...: N ranks on this host, in the background. Their process ids are in ${ranks[@]}; the
# output of each is in LOG.RANK.
start_ranks() {
    local n=$1 log=$2 r
    shift 2
    serve_rendezvous "$n"
    ranks=()
    for ((r = 0; r < n; r++)); do
        RANK=$r WORLD_SIZE=$n LOCAL_RANK=$r LOCAL_WORLD_SIZE=$n CAIRN_RENDEZVOUS=$met_at CAIRN_JOB_TOKEN=$token \
            "$CAIRN_BINARY" "$@" >"$log.$r" 2>&1 </dev/null &
        ranks[r]=$!
    done
}

# start_stopped STEP N LOG COMMAND...: as start_ranks, with $also in CAIRN_TEST_AT; returns when each rank has stopped
# itself before that step.
start_stopped() {
    local places='' r
    for ((r = 0; r < $2; r++)); do places+="step$1-$r=stop "; done
    CAIRN_TEST_AT="$places${also:-}" "${starts:-start_ranks}" "${@:2}"
    for r in "${ranks[@]}"; do await stopped "$r"; done
}
# kill_stopped RANK...: kills these; the others, stopped as well, continue.
kill_stopped() {
    local r
    for r in "$@"; do kill -9 "${ranks[r]}"; done
    kill -CONT "${ranks[@]}" 2>/dev/null || true
}

# end_ranks: waits for all. Their exit codes are in ${codes[@]}.
# shellcheck disable=SC2034 # codes: used by the tests
end_ranks() {
    local r
    codes=()
    for r in "${!ranks[@]}"; do
        if ! wait_until "$hang_limit" gone "${ranks[r]}"; then
            complain "rank $r hangs: $(tail -qn 3 ./*."$r")"
            kill -9 "${ranks[r]}"
        fi
        codes[r]=0
        wait "${ranks[r]}" 2>/dev/null || codes[r]=$?
    done
}

skip_without_gloo() {
    [ -e "${CAIRN_TEST_BUILD_DIR:-$source_dir/build}/cairn_gloo.so" ] || { echo "skipped: built without Gloo" && exit 77; }
}
