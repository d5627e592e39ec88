# What bench/gpu.sh measures: steps, memory and sums of our own, and PyTorch's steps beside them.
# shellcheck shell=bash
# shellcheck disable=SC2154 # variables of gpu.sh

# ---- the cases ----

# NAME MODEL BATCH LENGTH PREDICTIONS LENGTHS(- or a file) OPTIMIZER; a packed case has BATCH × LENGTH rows
cases_table() {
    cat <<END
large-128 large 256 128 20 - lamb
large-wiki large 64 512 76 wikipedia-lengths.tsv lamb
large-512 large 64 512 76 - lamb
base-128 base 256 128 20 - lamb
base-512 base 64 512 76 - lamb
large-mnli large 256 128 0 mnli-128.tsv adamw
base-mnli base 256 128 0 mnli-128.tsv adamw
base-wiki base 64 512 76 wikipedia-lengths.tsv lamb
END
}

# Sets config, batch, length, predictions, lengths_file (empty: full sequences). False: its lengths are not here.
set_case() {
    local name=$1 model=$2 file_name=$6
    config=$cairn_root/bench/configs/bert-$model.json batch=$3 length=$4 predictions=$5 lengths_file=''
    if [ "$file_name" != - ]; then
        lengths_file=$lengths/$file_name
        [ -r "$lengths_file" ] || lengths_file=$cairn_root/bench/lengths/$file_name
    fi
    if [ -n "$dry" ]; then
        tiny_model
        config=$work/tiny.json batch=2 length=16 predictions=$((predictions > 0 ? 3 : 0))
        [ -z "$lengths_file" ] || lengths_file=$work/tiny.tsv
    fi
    [ -z "$lengths_file" ] || [ -r "$lengths_file" ] || {
        leave_out "$name" "no $file_name" && return 1
    }
}

# ---- part: ours ----

# With `more` (flags, as words) in the environment.
our_case() { # NAME POLICIES OPS(--ops or empty) ROW-OF-THE-TABLE...
    local name=$1 policies=$2 ops=$3 flags=() code=0 n=${rounds:-2}
    if [ -n "$dry" ] || [ -n "${CAIRN_CUDA_ANY_ORDER:-}" ]; then n=1; fi
    shift 3
    wanted step "$name" "$(few 5 40)" || return 0
    set_case "$@" || return 0
    [ -z "$lengths_file" ] || flags+=(--lengths "$lengths_file")
    [ -z "$ops" ] || flags+=("$ops" --kernels "$results/gpu-$gpu-$name-kernels.csv")
    [ -z "$dry" ] || flags+=(--product 64)
    # shellcheck disable=SC2206 # words
    flags+=(${more:-})
    # shellcheck disable=SC2086 # policies are words
    with_memory "$name" "${step_cap:-150}" "$build/bench_step" --backend "$backend" --name "$name" --json "$file" --optimizer "$7" \
        --predictions "$predictions" --steps "$(few 1 20)" "${flags[@]}" "$config" "$batch" "$length" "$n" bf16 $policies ||
        code=$?
    judge "$name" "$code"
}

# Attention by wgmma, which GPUs of compute capability 9.0 have, beside the one that is taken.
native_attention() { # NAME ROW-OF-THE-TABLE...
    if CAIRN_CUDA_NATIVE_ATTENTION=1 opens; then
        CAIRN_CUDA_NATIVE_ATTENTION=1 our_case "$1" none "$(few '' --ops)" "${@:2}"
    else
        leave_out "$1" "no native attention: $why_not"
    fi
}

# Attention by cuDNN beside our own: a step without dropout, for cuDNN's is used for nothing else.
both_attentions() { # ROW-OF-THE-TABLE...
    local kind
    for kind in own cudnn; do
        if [ "$kind" = cudnn ] && ! has_cudnn; then
            leave_out "$1-attention-cudnn" "no cuDNN in this build, or none that loads"
            continue
        fi
        more="--dropout 0 --attention $kind" our_case "$1-attention-$kind" "none full" "$(few '' --ops)" "$@"
    done
}

has_cudnn() { opens --dropout 0 --attention cudnn; }

# bench_step opens with these flags and the environment: a step of the tiny model, once for all cases. If it does not,
# with exit code 2, why_not has its reason.
declare -A opened=()
opens() { # FLAG...
    local code=0 key="${CAIRN_CUDA_NATIVE_ATTENTION:-}|${CAIRN_CUDA_FUSED_GELU:-} $*"
    if [ -z "${opened[$key]:-}" ]; then
        tiny_model
        timeout --kill-after=10 "$(at_most 60)" "$build/bench_step" --backend "$backend" "$@" --product 64 "$work/tiny.json" \
            2 16 1 bf16 none >"$work/opens" 2>&1 || code=$?
        opened[$key]=yes
        if [ "$code" -eq 2 ] || [ "$code" -eq 124 ]; then
            opened[$key]="$([ "$code" -eq 2 ] && tail -n 1 "$work/opens" || echo "it did not open within 60 s")"
            say "${opened[$key]}"
        fi
    fi
    why_not=${opened[$key]}
    [ "$why_not" = yes ]
}

# The largest batch of BERT-Large at 128 that a plan puts into 16 GiB, run as it is.
largest_batch() {
    local name=large-128-16gib plan policy most code=0 device=h200
    wanted step "$name" "$(few 5 60)" || return 0
    set_case "$name" large 0 128 20 -
    plan=$("$build/cairn" plan --device "$device" --model-config "$config" --batch-size "$(few 2 256)" --max-seq-length "$length" \
        --predictions "$predictions" --optimizer lamb --micro-batch-tokens step --memory-budget "$(few 760MiB 16GiB)" --json) || {
        complain "$name: nothing is planned (exit code $?)"
        return 0
    }
    for policy in full selective lean; do
        most=$(sed -n "s/.*\"name\": \"$policy\".*\"max_batch\": \([0-9]*\).*/\1/p" <<<"$plan")
        record largest case "$name" policy "$policy" batch "${most:-0}"
        say "$name: $policy fits ${most:-no} sequences by the plan"
        [ "$policy" = full ] || continue
        [ -z "$dry" ] || most=2
        with_memory "$name" 90 "$build/bench_step" --backend "$backend" --name "$name" --json "$file" --optimizer lamb \
            --predictions "$predictions" --steps "$(few 1 3)" --product "$(few 64 2048)" "$config" "$most" "$length" 1 bf16 full ||
            code=$?
        judge "$name" "$code"
    done
}

# The figures that decide most come first.
part_ours() {
    local row table name
    if [ -z "$dry" ] && "$python" -c 'import torch' 2>/dev/null; then
        timeout --kill-after=10 "$(at_most 60)" "$python" "$cairn_root/bench/peer_gpu.py" --ceilings --name ours >>"$file" || true
    fi
    table=$(cases_table)
    row_of() { read -r -a row < <(grep "^$1 " <<<"$table"); }
    row_of large-128 && our_case large-128 "none lean" --ops "${row[@]}"
    row_of large-512 && our_case large-512 "none lean" '' "${row[@]}"
    row_of large-wiki && our_case large-wiki "none lean" '' "${row[@]}"
    row_of base-128 && our_case base-128 "none lean" "--ops" "${row[@]}"
    row_of base-512 && our_case base-512 "none lean" '' "${row[@]}"
    largest_batch
    row_of large-128 && our_case large-128-policies "none selective full offload" '' "${row[@]}"
    for name in large-128 large-512 large-wiki; do row_of "$name" && both_attentions "${row[@]}"; done
    # attention's backward in two kernels, as for long sequences, beside the one that is taken up to 512 tokens
    for name in large-128 large-512 large-wiki base-mnli; do
        row_of "$name" && CAIRN_CUDA_TWO_PASSES=1 our_case "$name-two-passes" none "$(few '' --ops)" "${row[@]}"
    done
    for name in large-128 large-512 large-wiki base-mnli; do row_of "$name" && native_attention "$name-native" "${row[@]}"; done
    # what a fixed order of sums costs: the same step with products that may add in an order of chance; one round and one
    # policy, for two would not have the same bits; our own kernels have no such variant
    row_of large-128 && CAIRN_CUDA_ANY_ORDER=1 our_case large-128-any-order none '' "${row[@]}"
    for name in base-wiki large-mnli base-mnli; do row_of "$name" && our_case "$name" "none lean" '' "${row[@]}"; done
    our_ranks
}

# Sums between all GPUs, and how a step of one rank on each compares with one alone.
our_ranks() {
    local code=0 model=$cairn_root/bench/configs/bert-large.json
    find_ranks || return 0
    wanted ranks "ranks-$gpus" "$(few 5 60)" || return 0
    if [ "$gpus" -lt 2 ]; then
        leave_out "ranks-$gpus" "one GPU"
        return 0
    fi
    [ -z "$dry" ] || { tiny_model && model=$work/tiny.json; }
    timeout --kill-after=10 "$(at_most 600)" env "${rank_flags[@]}" bash "$work/ranks" "$gpus" "$build/bench_gpus" --backend "$backend" \
        --name "ranks-$gpus" --json "$file" --most "$(few 1 1024)" --steps "$(few 1 20)" "$model" "$(few 1 64)" "$(few 16 128)" ||
        code=$?
    judge "ranks-$gpus" "$code"
}

# ---- part: variability ----

# Sentences, a vocabulary as long as the model wants, and shards of them. False: this build makes none.
variability_data() {
    local words
    awk -F'\t' 'NR > 1 { print $9 "\n" $10 (NR % 64 == 0 ? "\n" : "") }' "$cairn_root/tasks/glue/sample/train.tsv" >"$work/sentences.txt"
    "$build/cairn" vocab --input "$work/sentences.txt" --size 400 --output "$work/words.txt" 2>/dev/null
    words=$(sed -n 's/.*"vocab_size": *\([0-9]*\).*/\1/p' "$config")
    { cat "$work/words.txt" && seq -f '[unused%.0f]' "$words"; } | head -n "$words" >"$work/words-all.txt"
    "$build/cairn" shards --input "$work/sentences.txt" --vocab "$work/words-all.txt" --output-dir "$work/shards" \
        --max-seq-length "$length" --predictions "$predictions" --dupe-factor "$(few 1 50)" >"$work/log" 2>&1
}

# 250 iterations of BERT-Large phase 1, twice, on all GPUs at once: step times, clocks, temperatures of each.
part_variability() {
    local name file_name runs=() command code
    find_gpus variability cairn && { [ "$gpus" -eq 1 ] || find_gpus variability cairn_gloo.so; } || return 0
    set_case variability large 256 128 20 -
    variability_data || { leave_out variability "no shards: $(tail -n 1 "$work/log")" && return 0; }
    for name in first second; do
        wanted variability "$name" "$(few 5 60)" || continue
        code=0
        command=("$build/cairn" pretrain --preset "bert-$(few tiny large)-variability" --model-config "$config" --vocab "$work/words-all.txt"
            --data-dir "$work/shards" --backend "$backend" --comm "$(few gloo auto)" --precision bf16 --batch-size $((batch * gpus)) --max-steps "$(few 3 250)"
            --micro-batch-tokens $((batch * length)) --max-seq-length "$length" --predictions "$predictions" --save-every off
            --gpu-metrics 100ms --output-dir "$work/variability-$name")
        [ "$gpus" -eq 1 ] || command=(env "${rank_flags[@]}" bash "$work/ranks" "$gpus" "${command[@]}")
        timeout --kill-after=10 "$(at_most 180)" "${command[@]}" >"$work/log" 2>&1 || code=$?
        [ "$code" -eq 0 ] || tail -n 3 "$work/log" >&2
        judge "variability, $name run" "$code"
        [ "$code" -eq 0 ] || continue
        record variability case "$name" gpus "$gpus" steps "$(few 3 250)"
        runs+=("$results/gpu-$gpu-variability-$name")
        mkdir -p -- "${runs[-1]}"
        for file_name in run.json ranks.jsonl gpu{,-rank*}.csv; do # what `cairn variability` reads
            cp -- "$work/variability-$name"/$file_name "${runs[-1]}/" 2>/dev/null || true
        done
    done
    [ ${#runs[@]} -eq 0 ] || "$build/cairn" variability "${runs[@]}" --output-dir "$work/variability" \
        --csv "$results/gpu-$gpu-variability.csv" || complain "cairn variability"
}

# ---- part: peer ----

part_peer() {
    local row device=cuda settings flags sequences
    [ -z "$dry" ] || device=cpu
    if ! "$python" -c 'import torch, transformers' 2>/dev/null; then
        leave_out peer "$python has no PyTorch and Transformers"
        return 0
    fi
    timeout --kill-after=10 "$(at_most 60)" "$python" "$cairn_root/bench/peer_gpu.py" --ceilings --device "$device" \
        --name peer >>"$file" || complain "ceilings"
    for settings in plain compile checkpointing compile+checkpointing; do
        [ -z "$dry" ] || [ "$settings" = plain ] || continue # compiling proves nothing here, and takes long
        while read -r -a row; do
            wanted "peer" "${row[0]}\", \"setting\": \"$settings" "$(few 5 30)" || continue
            set_case "${row[@]}" || continue
            flags=()
            sequences=$batch
            [ -z "$lengths_file" ] || flags+=(--lengths "$lengths_file")
            say "${row[0]}: $settings"
            timeout --kill-after=10 "$(at_most 600)" "$python" "$cairn_root/bench/peer_gpu.py" --model-config "$config" --name "${row[0]}" --device "$device" --batch "$sequences" \
                --seq "$length" --predictions "$predictions" --steps "$(few 1 10)" --rounds "$(few 1 3)" --warmup "$(few 1 8)" \
                "${flags[@]}" --settings "$settings" --until $(($(date +%s) + $(left))) | tee -a "$file" ||
                complain "${row[0]}, $settings"
        done < <(cases_table)
    done
}
