# What the tests of snapshots share: a tiny task whose training takes no time, and ways to compare runs.
# shellcheck shell=bash
# shellcheck source=tests/scripts/lib.sh
. "$(dirname -- "${BASH_SOURCE[0]}")/../scripts/lib.sh"

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
# The command of every run here but its number of steps.
task=(glue --data-dir . --model-config config.json --vocab vocab.txt --do-train --do-eval --backend ref --threads 1
    --max-seq-length 32 --batch-size 4 --learning-rate 1e-3 --save-every 1h --snapshot-dir "$memory")

# same_run A B STEPS: weights, moments, losses and results are the same, to the last bit.
same_run() {
    local file
    for file in model.safetensors eval_results.json "checkpoint-$3/model.safetensors" \
        "checkpoint-$3/optimizer.safetensors"; do
        cmp -s -- "$1/$file" "$2/$file" || complain "$1/$file and $2/$file differ"
    done
    [ "$(losses "$1")" = "$(losses "$2")" ] || complain "the losses of $1 and $2 differ"
}

# A pause of a random part of $1 milliseconds. RANDOM is seeded, but what it meets is not.
RANDOM=${CAIRN_TEST_SEED:-4711}
pause() { sleep "$(printf '0.%03d' $((RANDOM % $1)))"; }

snapshots_left() { find "$memory" -mindepth 1 -name 'cairn-*' | wc -l; }

# wait_until CONDITION…: evaluates it until it is true, a minute at most.
wait_until() {
    local tries=0
    until eval "$1"; do
        sleep 0.01
        tries=$((tries + 1))
        if [ "$tries" -ge 6000 ]; then complain "this never came: $1" && cat log && return; fi
    done
}
