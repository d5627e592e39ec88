# What bench/gpu.sh tests: ops, training, ranks and pipelines; and its first look.
# shellcheck shell=bash
# shellcheck disable=SC2154 # variables of gpu.sh

# A hanging test costs its cap, not the part. One of a sanitizer may be slow.
run_test() { # NAME COMMAND...
    local name=$1 code=0 start=$SECONDS verdict most
    most=${cap:-60}
    shift
    wanted test "$name" 10 || return 0
    (cd -- "$cairn_root" && timeout --kill-after=10 "$(at_most "$most")" "$@") >"$work/log" 2>&1 || code=$?
    case $code in 0) verdict=passed ;; 124) verdict='no time left' ;; *) verdict=failed ;; esac
    [ "$code" -ne 77 ] || [ -z "$dry" ] || verdict=skipped # nothing is skipped on a GPU
    # it hangs, or is far too slow
    [ "$code" -ne 124 ] || [ $((SECONDS - start)) -lt "$most" ] || [[ $name = sanitizer-* ]] || verdict=failed
    record test case "$name" verdict "$verdict" seconds $((SECONDS - start))
    say "$(printf '%-28s %s' "$name" "$verdict")"
    if [ "$verdict" = failed ]; then
        complain "$name (exit code $code)"
        tail -n 15 "$work/log" >&2
    fi
}

test_ranks() {
    local shard before=$failures
    find_ranks || return 0
    for shard in none optimizer; do # fails if the ranks' weights differ
        cap=60 run_test "ranks-$shard" env "${rank_flags[@]}" bash "$work/ranks" 2 "$build/bench_gpus" --backend "$backend" \
            --precision fp32 --shard "$shard" --most 1 --steps "$(few 1 5)" "$work/tiny.json" "$(few 1 8)" 16
    done
    [ "$gpus" -gt 1 ] || failures=$before # NCCL does not support ranks that share a GPU: no verdict
}

# Two places over Gloo, on one GPU if there is one alone: the weights of one rank to the last bit.
test_pipelines() {
    local run schedule
    find_gpus pipelines cairn cairn_gloo.so || return 0
    if [ "$gpus" -lt 2 ] && [ "$(of_gpu compute_mode)" != Default ]; then
        leave_out pipelines "one GPU, which two processes may not share"
        return 0
    fi
    tiny_glue
    run=("$build/cairn" glue --model-config "$work/glue.json" --vocab "$work/vocab.txt" --data-dir "$work/glue" --do-train
        --max-steps 2 --batch-size "$(few 4 32)" --max-seq-length "$(few 8 64)" --micro-batch-tokens "$(few 16 256)"
        --backend "$backend" --precision bf16 --save-every 0 --comm gloo)
    cap=60 run_test pipelines-alone "${run[@]}" --output-dir "$work/alone"
    for schedule in zb-v $(few '' '1f1b chimera'); do
        cap=60 run_test "pipelines-$schedule" bash -c 'out=$1 && shift && "$@" --output-dir "$out" --pipeline "${out##*/}" &&
            { [ "${out##*/}" = chimera ] || cmp "${out%/*}/alone/model.safetensors" "$out/model.safetensors"; }' \
            - "$work/$schedule" env "${rank_flags[@]}" bash "$work/ranks" 2 "${run[@]}"
    done
}

# Four layers, and data for them.
tiny_glue() {
    local name
    mkdir -p "$work/glue"
    for name in train dev_matched dev_mismatched; do
        head -n "$(few 9 129)" "$cairn_root/tasks/glue/sample/$name.tsv" >"$work/glue/$name.tsv"
    done
    "$build/cairn" vocab --input "$work/glue/train.tsv" --size 400 --output "$work/vocab.txt" 2>/dev/null
    cat >"$work/glue.json" <<END
{"vocab_size": $(wc -l <"$work/vocab.txt"), "hidden_size": $(few 32 128), "num_hidden_layers": 4, "num_attention_heads": 2,
 "intermediate_size": $(few 64 512), "max_position_embeddings": 128, "hidden_act": "gelu"}
END
}

# golden NAME PROGRAM PATTERN: tests of a tiny model's training, as on the host executor; the pattern chooses among them.
golden() {
    local program=$build/tests/cuda_host/$2
    [ -x "$program" ] || { leave_out "$1" "not built" && return 0; }
    cap=120 run_test "$1" env CAIRN_TEST_BACKEND="$backend" CAIRN_TEST_ONLY="$3" "$program"
}

# The programs of tests/ops, from simple to hard, so that the first failure names the layer. WHICH: all, or small (those
# that compute-sanitizer can run within a minute).
op_programs() {
    local name small='gelu activate dropout pack gather addnorm embed loss' all=''
    for name in "$build"/tests/ops_*; do all+=" ${name##*/ops_}"; done
    [ -z "$dry" ] || { echo activate pack && return; } # the quickest
    [ "$1" = all ] || { echo "$small attention" && return; }
    # shellcheck disable=SC2086 # words
    printf '%s\n' $small optimizer slices linear mlm_xent attention attention_plain $all | awk '!seen[$1]++' | tr '\n' ' '
}

failed_ops=() # of this part
op_test() { # NAME
    local before=$failures program=$build/tests/ops_$1
    [ -x "$program" ] || { leave_out "op-$1" "not built" && return 0; }
    run_test "op-$1" env CAIRN_TEST_BACKENDS="$backend" "$program"
    [ "$failures" -eq "$before" ] || failed_ops+=("$1")
}

# Each op that failed again, so that its first fault is named.
failed_ops_again() {
    local name run
    for name in "${failed_ops[@]}"; do
        run=(env CAIRN_TEST_BACKENDS="$backend")
        cap=60 run_test "op-$name-sync" "${run[@]}" CAIRN_CUDA_SYNC=1 CAIRN_CUDA_GRAPHS=0 "$build/tests/ops_$name"
        if command -v compute-sanitizer >/dev/null; then
            cap=60 run_test "op-$name-memcheck" "${run[@]}" compute-sanitizer --tool memcheck --error-exitcode 1 "$build/tests/ops_$name"
        fi
    done
    failed_ops=()
}

part_tests() {
    local name tool type
    tiny_model
    # A dry run tries a short one of each program: tests/cuda_host runs all of them on the host executor.
    golden ten-steps cuda_host_training "$(few test_dropout_matters '*')"
    golden fp16-overflow cuda_host_training "$(few test_dropout_matters test_overflow_in_graphs)"
    golden offload cuda_host_offload "$(few test_rows '*')"
    for type in bf16 fp32; do # bench_step fails if the weights after its steps differ between policies or rounds
        run_test "bits-$type" "$build/bench_step" --backend "$backend" --predictions 5 --optimizer lamb --product 64 \
            "$work/tiny.json" "$(few 3 8)" 16 2 "$type" none full
        # shellcheck disable=SC2046 # words
        run_test "bits-packed-$type" "$build/bench_step" --backend "$backend" --lengths "$work/tiny.tsv" --product 64 \
            "$work/tiny.json" "$(few 2 8)" 16 1 "$type" none $(few '' 'lean ffn selective half-attention') full offload $(few '' every:2)
    done
    for name in $(op_programs all); do op_test "$name"; done
    failed_ops_again
    if has_cudnn; then
        run_test op-attention-cudnn env CAIRN_TEST_BACKENDS="$backend" CAIRN_TEST_ATTENTION=cudnn CAIRN_TEST_ONLY="$(few test_gaps '*')" \
            "$build/tests/ops_attention_plain"
        golden cudnn cuda_host_cudnn "$(few test_open '*')"
    else
        leave_out op-attention-cudnn "no cuDNN in this build, or none that loads"
    fi
    if CAIRN_CUDA_NATIVE_ATTENTION=1 opens; then
        run_test op-attention-native env CAIRN_TEST_BACKENDS="$backend" CAIRN_CUDA_NATIVE_ATTENTION=1 CAIRN_TEST_ONLY="$(few test_gaps '*')" \
            "$build/tests/ops_attention$(few _plain '')"
    else
        leave_out op-attention-native "no native attention: $why_not"
    fi
    if CAIRN_CUDA_FUSED_GELU=1 opens; then
        run_test op-linear-fused env CAIRN_TEST_BACKENDS="$backend" CAIRN_CUDA_FUSED_GELU=1 "$build/tests/ops_linear"
        golden fused cuda_host_fused "$(few test_refusals '*')"
    else
        leave_out op-linear-fused "no GELU in products: $why_not"
    fi
    test_pipelines
    # Without a folder for the choices no product is timed; the libraries' own kernels are excluded. They take what time
    # is left, one tool after the other.
    for tool in memcheck racecheck initcheck synccheck; do
        if [ -n "$dry" ] || ! command -v compute-sanitizer >/dev/null; then
            leave_out "sanitizer-$tool" "no compute-sanitizer"
            continue
        fi
        for name in $(op_programs small); do
            [ "$(left)" -gt 90 ] || continue # for the ranks
            run_test "sanitizer-$tool-$name" env -u HOME -u XDG_CACHE_HOME CAIRN_TEST_BACKENDS="$backend" \
                compute-sanitizer --tool "$tool" --error-exitcode 1 \
                --kernel-name-exclude 'regex=cublas|cutlass|gemm|nvjet|xmma' "$build/tests/ops_$name"
        done
    done
    test_ranks # last: several ranks on one GPU may hang, which NCCL does not support
}

# ---- part: smoke ----

# The ops that other ops need come first, then the figures that decide most; what takes long comes last. `held`: seconds
# that the op tests leave for the figures, however many of them hang.
part_smoke() {
    # shellcheck disable=SC2034 # step_cap is our_case's
    local name row held step_cap=90 later=()
    held=$(few 0 200)
    if [ -z "$dry" ]; then
        nvidia-smi --query-gpu=name,driver_version,clocks.sm,clocks.mem,temperature.gpu,power.draw,memory.free --format=csv >&2 || true
        record compilers gcc "$(gcc --version | head -n 1)" nvcc "$(nvcc --version 2>/dev/null | tail -n 1)"
    fi
    for name in $(op_programs all); do
        if [ "$(left)" -gt "$held" ]; then
            cap=30 op_test "$name"
        else
            later+=("$name")
        fi
    done
    if [ -n "$dry" ] || [ ! -x "$build/bench_products" ]; then
        leave_out products "no GPU, or bench_products is not built"
    else
        run_test products "$build/bench_products" "$file"
    fi
    while read -r -a row; do
        case ${row[0]} in
        large-128) rounds=1 our_case large-128 none "--ops" "${row[@]}" ;;
        large-512) rounds=1 our_case large-512 none '' "${row[@]}" ;;
        esac
    done < <(cases_table)
    for name in "${later[@]}"; do op_test "$name"; done
    failed_ops_again
}
