#!/usr/bin/env bash
# The memory that is planned is the memory that is used, in the real program: a model of 10 million parameters, with all
# and with little kept; pretraining, whose masked positions come in any number of rows. CAIRN_TEST_DEEP=1 takes BERT-Base,
# and all combinations.
set -euo pipefail
# shellcheck source=tests/scripts/lib.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"

unset CAIRN_TEST_SAMPLES # a user's process makes them

# holds NAME OVER SHARE [GONE]: the peak of the last run, at most OVER MiB above the plan, below it by at most 16 MiB or by
# SHARE, and by GONE MiB that are free again before the first step.
holds() {
    local planned
    read -r measured planned < <(sed -n 's/.*peak memory \([0-9.]*\) MiB (planned \([0-9.]*\) MiB).*/\1 \2/p' <<<"$output") ||
        { complain "$1: no peak was printed" && return; }
    echo "$1: planned $planned MiB, measured $measured MiB"
    awk -v m="$measured" -v p="$planned" -v over="$2" -v share="$3" -v gone="${4:-0}" \
        'BEGIN { room = gone + (share > 0 ? share * p : 16); exit !(m <= p + over && m >= p - room) }' ||
        complain "$1: planned $planned MiB, measured $measured MiB"
}

# model FILE VOCABULARY HIDDEN LAYERS
model() {
    cat >"$1" <<END
{"vocab_size": $2, "hidden_size": $3, "num_hidden_layers": $4, "num_attention_heads": $(($3 / 64)),
 "intermediate_size": $((4 * $3)), "max_position_embeddings": 512, "type_vocab_size": 2, "hidden_act": "gelu",
 "hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1, "initializer_range": 0.02, "layer_norm_eps": 1e-12}
END
}

# pretrain MODEL RANKS FLAG...: two steps, no save while training.
pretrain() {
    local config=$1 ranks=$2 launch=()
    shift 2
    [ "$ranks" -eq 1 ] || launch=(launch --ranks "$ranks" --)
    rm -rf -- run
    expect 0 "$CAIRN_BINARY" "${launch[@]}" pretrain --do-train --model-config "$config" --vocab vocab.txt --data-dir shards \
        --max-seq-length 128 --max-steps 2 --save-every off --output-dir run "$@"
}

# ---- fine-tuning ----

base_fits() {
    available=$(awk '/^MemAvailable/ { print int($2 / 1024) }' /proc/meminfo)
    [ "$available" -gt "$1" ] && return
    echo "skipped: BERT-Base; $available MiB are free, $1 are needed"
    return 1
}

if [ -z "${CAIRN_TEST_DEEP:-}" ] || base_fits 6000; then
    read -r words hidden layers < <(quick_or_deep "8000 256 4" "30522 768 12")
    "$CAIRN_BINARY" vocab --input "$sample/train.tsv" --size 600 --output vocab.txt 2>/dev/null
    # The vocabulary is filled up to the model's size: what counts here are the embeddings.
    { cat vocab.txt && seq 100001 $((100000 + words - $(wc -l <vocab.txt))); } >full.txt
    model base.json "$words" "$hidden" "$layers"
    fine=("$CAIRN_BINARY" glue --model-config base.json --vocab full.txt --data-dir "$sample" --do-train --padded --batch-size 8
        --schedule constant --save-every off)
    tune() { # NAME FLAG...
        expect 0 "${fine[@]}" --max-steps 2 --output-dir "$@"
        # Recompute gave memory back, and not one bit was lost for it.
        cmp <(losses none) <(losses "$1") || complain "the losses of $1 differ"
    }
    within_budget() { # NAME
        holds "$1 in $budget MiB" 0 "$(quick_or_deep 0 0.03)"
        awk -v m="$measured" -v b="$budget" 'BEGIN { exit !(m <= b) }' || complain "$measured MiB of a budget of $budget MiB"
    }
    for policy in none full; do
        tune $policy --recompute $policy
        holds "fine-tuning, $policy" 0 "$(quick_or_deep 0 0.03)" # 0: 16 MiB
    done
    # A tokenizer of as many pieces as multilingual BERT's takes megabytes where it is written.
    { cat full.txt && seq 200001 $((200000 + 119547 - words)); } >wide.txt
    model wide.json 119547 128 2
    expect 0 "${fine[@]}" --model-config wide.json --vocab wide.txt --max-steps 2 --output-dir wide
    holds "a vocabulary of 119547 pieces" 0 0
    # Without room for the save buffer beside all that is kept, steps run by another plan while a save is written.
    most=$(json_number none/run.json planned_peak_bytes)
    budget=$(((most - (8 << 20)) / 1048576))
    tune saves --recompute auto --memory-budget ${budget}MiB --save-steps 1 --verbose
    says "plan: recompute auto (none×$layers), " "; while a save is written recompute auto (" "step 1: steps run by recompute auto ("
    within_budget "fine-tuning, with a plan for saves"
    cmp none/model.safetensors saves/model.safetensors || complain "a plan for saves changes the weights"
    grep -q '"while_saving": "recompute auto (' saves/run.json || complain "run.json has no plan for saves"
    # With many layers what the second plan makes the process hold counts.
    model deep.json "$words" 64 36
    deep=("${fine[@]}" --model-config deep.json --snapshot-steps 0 --recompute auto --save-steps 1)
    expect 0 "${deep[@]}" --max-steps 1 --output-dir deep
    budget=$(($(json_number deep/run.json planned_peak_bytes) / 1048576 - 8))
    expect 0 "${deep[@]}" --max-steps 2 --output-dir deep-saves --memory-budget ${budget}MiB
    says "; while a save is written recompute auto ("
    within_budget "36 layers"
    # Five budgets between the smallest plan and that of none, both without the save buffer.
    expect 76 "${fine[@]}" --max-steps 2 --output-dir refused --recompute auto --memory-budget 12MiB
    least=$(sed -n 's/.*It fits with --memory-budget \([0-9]*\)MiB.*/\1/p' <<<"$output")
    most=$((most - $(json_number none/run.json save)))
    for i in 1 2 3 4 5; do
        budget=$((least + (most / 1048576 - least) * i / 6))
        tune "auto-$i" --recompute auto --memory-budget ${budget}MiB
        within_budget "fine-tuning, auto"
        chosen=$(sed -n 's/.*plan: recompute auto (\([^)]*\)).*/\1/p' <<<"$output")
        echo "$chosen"
    done
    # What auto chose is a policy, and another one may follow where a run resumes.
    expect 0 "${fine[@]}" --max-steps 1 --output-dir resumed --recompute "$chosen"
    says "plan: recompute $chosen, "
    grep -qF "\"recompute\": \"$chosen\"" resumed/run.json || complain "run.json: $(grep recompute resumed/run.json)"
    kept=$(json_number auto-5/run.json activations)
    { [ -n "$kept" ] && [ "$(json_number resumed/run.json activations)" = "$kept" ]; } || complain "$chosen: not the activations of auto, $kept bytes"
    tune resumed --override --recompute "x+y1*1,inner*1,qkv+g*$((layers - 2))"
    says "resuming from" "plan: recompute x+y1×1 inner×1 qkv+g×$((layers - 2)), "
    cmp none/model.safetensors resumed/model.safetensors || complain "the weights of a resumed mixture differ"
fi

# ---- pretraining ----

export CAIRN_CPU_BF16=emulate # bf16 on any CPU
make_sample_text
expect 0 "$CAIRN_BINARY" shards --input text --vocab vocab.txt --max-seq-length 128 --eval-fraction 0.15 --output-dir shards
model tiny.json 600 128 2

pretrain tiny.json 1 --batch-size 64 --precision fp32
holds "64 sequences" 0 0
planned=$(sed -n 's/.*(planned \([0-9]*\).*/\1/p' <<<"$output")
pretrain tiny.json 2 --batch-size 64 --precision bf16 --recompute full --eval-dir shards/eval --do-eval
holds "64 sequences, 2 ranks, bf16, evaluation" 0 0
# oneDNN in place of own tiles, where it serves by no brgemm kernels: it then allocates a little inside a product.
CAIRN_CPU_PRODUCTS=onednn pretrain tiny.json 1 --batch-size 64 --precision fp32
holds "64 sequences, oneDNN" 8 0
# A budget is kept.
budget=$((planned * 3 / 4))
pretrain tiny.json 1 --batch-size 64 --precision fp32 --recompute auto --memory-budget ${budget}MiB
says "recompute auto ("
measured=$(sed -n 's/.*peak memory \([0-9.]*\) MiB.*/\1/p' <<<"$output")
awk -v m="$measured" -v b="$budget" 'BEGIN { exit !(m <= b) }' || complain "$measured MiB of a budget of $budget MiB"
rm -rf -- run
expect 76 "$CAIRN_BINARY" pretrain --do-train --model-config tiny.json --vocab vocab.txt --data-dir shards \
    --max-seq-length 128 --max-steps 2 --output-dir run --batch-size 64 --memory-budget 40MiB
[ ! -s run/metrics.jsonl ] || complain "a step was made beyond the budget"

# ---- pipelines ----

# Rank 0 imports through a copy of all weights, of 20 MiB. Replicas and directions sum in pieces. A pipeline without them exchanges boundaries and the word embedding alone.
wide=(--data-dir "$sample" --model-config wide.json --vocab wide.txt --do-train --batch-size 8 --micro-batch-tokens 256
    --max-steps 2 --recompute none --snapshot-steps 0)
{ cat vocab.txt && seq 100001 $((108000 - $(wc -l <vocab.txt))); } >wide.txt
model wide.json 8000 256 4
for pipeline in gpipe chimera "1f1b --stages 2"; do
    [[ $pipeline == *stages* ]] && ranks=4 || ranks=2
    rm -rf -- run
    # shellcheck disable=SC2086 # several words
    expect 0 "$CAIRN_BINARY" launch --ranks $ranks -- glue "${wide[@]}" --verbose --pipeline $pipeline --output-dir run
    holds "$pipeline, $ranks ranks" 0 0 20
    # Nothing is summed in gpipe: boundaries and norms alone are exchanged.
    [ "$pipeline" != gpipe ] || awk '$1 == "weights" { w = $2 } $1 == "exchange" { e = $2 } END { exit !(e > 0 && e < w / 4) }' <<<"$output" ||
        complain "gpipe: $(grep -E '^  (weights|exchange)' <<<"$output")"
done

# ---- a budget that a refusal names ----

peak=${CAIRN_TEST_BUILD_DIR:-$source_dir/build}/tests/fakes/peak.so

# starts NAME RANKS COMMAND FLAG...: refused, it starts in the budget that is named, stops, resumes there, and no rank holds
# more at any moment.
starts() {
    local name=$1 ranks=$2 launch=() budget measured steps less least
    shift 2
    [ "$ranks" -eq 1 ] || launch=(launch --ranks "$ranks" --)
    rm -rf -- run
    expect 76 "$CAIRN_BINARY" "${launch[@]}" "$@" --max-steps 2 --memory-budget 12MiB --output-dir run
    says "more than the memory budget of 12.0 MiB"
    budget=$(sed -n 's/.*It fits with --memory-budget \([0-9]*\)MiB.*/\1/p' <<<"$output" | head -n 1)
    less=$(sed -n 's/.*with --recompute auto and --memory-budget \([0-9]*\)MiB.*/\1/p' <<<"$output" | head -n 1)
    least=$(sed -n 's/.*no schedule of these micro-batches takes less than \([0-9.]*\) MiB.*/\1/p' <<<"$output" | head -n 1)
    awk -v l="$least" -v b="${less:-$budget}" 'BEGIN { exit !(l == "" || (l > 12 && l <= b)) }' ||
        complain "$name: a schedule takes $least MiB at least, a plan ${less:-$budget} MiB"
    rm -rf -- run # text that is made before a plan is
    for steps in 2 4; do
        rm -f -- peaks
        LD_PRELOAD=$peak CAIRN_TEST_PEAK=$work/peaks expect 0 "$CAIRN_BINARY" "${launch[@]}" "$@" --max-steps $steps --override \
            --memory-budget "${budget}MiB" --output-dir run
        [ $steps -eq 2 ] || says "resuming from"
        measured=$(sort -n peaks | tail -n 1)
        echo "$name, $steps steps: $measured MiB of $budget"
        awk -v m="$measured" -v b="$budget" 'BEGIN { exit !(m > 0 && m <= b) }' || complain "$name: $measured MiB of $budget MiB"
    done
    [ -z "$less" ] || expect 0 "$CAIRN_BINARY" "${launch[@]}" "$@" --recompute auto --memory-budget "${less}MiB" --max-steps 1 \
        --output-dir run --resume never
}

model deep.json 600 128 4
glue=(glue --data-dir "$sample" --model-config tiny.json --vocab vocab.txt --do-train --batch-size 16 --max-seq-length 128)
starts "K-FAC" 1 "${glue[@]}" --model-config wide.json --vocab wide.txt --recompute auto --kfac-interval 1 --kfac-lag 1
starts "a sharded optimizer" 2 "${glue[@]}" --recompute auto --shard optimizer --do-eval
starts "a pipeline" 2 "${glue[@]}" --recompute half-attention --pipeline interleaved --stage-chunks 2 --model-config deep.json --do-eval --kfac-interval 2 --kfac-lag 0
starts "automatic micro-batches of an odd step" 1 "${glue[@]}" --recompute none --micro-batch-tokens auto --batch-size 31 --padded
starts "automatic micro-batches" 1 "${glue[@]}" --recompute auto --micro-batch-tokens auto --do-eval --eval-batch-size 64
starts "data that is still to be made" 1 pretrain --input text --model-config tiny.json --vocab vocab.txt --max-seq-length 128 \
    --batch-size 16 --recompute auto

# ---- all combinations ----

if [ "${CAIRN_TEST_DEEP:-}" = 1 ]; then
    model small.json 600 512 4
    model base.json 600 768 12
    models=(tiny small)
    base_fits 10000 && models+=(base)
    for name in "${models[@]}"; do
        [ "$name" = tiny ] && batch=256 share=0 || { batch=16 share=0.03; }
        for policy in none half-attention full every:2; do
            for precision in fp32 bf16; do
                for ranks in 1 2; do
                    for evaluation in "" "--do-eval --eval-dir shards/eval --eval-samples 32"; do
                        # shellcheck disable=SC2086 # several words
                        pretrain "$name.json" $ranks --batch-size $batch --micro-batch-tokens step --recompute $policy \
                            --precision $precision $evaluation
                        holds "$name $policy $precision, $ranks ranks${evaluation:+, evaluation}" 0 $share
                    done
                done
            done
        done
    done
fi
finish
