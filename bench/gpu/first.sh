# The first minutes on a GPU: packing what they need, whether all is right, how fast it is.
# shellcheck shell=bash
# shellcheck disable=SC2154 # variables of gpu.sh

# ---- --pack ----

kit_libraries='xxhash|cmocka|gloo|hiredis|ibverbs|nl-route-3|nl-3' # never libc, libstdc++, libgcc or libgomp

# Steps of BERT-Base from random weights on rows of MNLI; the same on the CPU and on the GPU.
mnli_run() { # FOLDER BACKEND PRECISION OUTPUT: sets `run`
    run=("$build/cairn" glue --task MNLI --model-config "$1/config.json" --vocab "$1/vocab.txt" --data-dir "$1" --do-train \
        --max-steps 10 --batch-size "$(few 2 8)" --max-seq-length "$(few 16 128)" --log-every 1 --save-every off \
        --backend "$2" --precision "$3" --output-dir "$4")
}

# Builds, unless --build names a folder that has all of it, and fills the folder with programs, their libraries, data,
# and the losses of a run on the CPU.
pack_kit() {
    local to=$1 name file programs=() from=${CAIRN_TEST_DATA:-$cairn_root/../shared/data}
    mkdir -p -- "$to"/build/tests/cuda_host "$to"/libs "$to"/mnli
    to=$(cd -- "$to" && pwd)
    if [ -z "$build" ]; then
        build=$cairn_root/build-gpu-kit
        say "building in $build for $arch"
        mkdir -p "$build"
        { cmake -S "$cairn_root" -B "$build" -G Ninja -DWITH_CUDA=ON -DCAIRN_CUDA_ARCHITECTURES="$arch" -DWITH_HDF5=OFF \
            -DWITH_EXPAT=OFF -DWITH_NCCL=OFF && ninja -C "$build" cairn backend_cpu backend_cuda backend_cuda_host transport_gloo \
            bench_step bench_products cuda_host_training cuda_host_fused cuda_host_offload cuda_host_cudnn fake_cudnn ops_programs; } \
            >"$build/build.log" 2>&1 || { tail -n 20 "$build/build.log" >&2 && die 1 "building failed (its log: $build/build.log)"; }
    fi
    export CAIRN_BACKEND_DIR=$build
    for name in cairn bench_step bench_products cairn_cuda.so cairn_cuda_host.so cairn_gloo.so tests/cuda_host/cuda_host_training \
        tests/cuda_host/cuda_host_fused tests/cuda_host/cuda_host_offload tests/cuda_host/cuda_host_cudnn tests/cuda_host/fake_cudnn.so $(cd -- "$build" && printf '%s ' tests/ops_*); do
        if [ -e "$build/$name" ]; then
            strip -o "$to/build/$name" "$build/$name"
            programs+=("$to/build/$name")
        else
            say "$build has no $name: what needs it is left out"
        fi
    done
    ldd "${programs[@]}" | sed -n 's/.* => \(\/[^ ]*\) .*/\1/p' | grep -E "/lib($kit_libraries)\.so" | sort -u |
        while read -r file; do cp -L -- "$file" "$to/libs/"; done
    if [ -z "$dry" ] && [ -r "$from/glue/MNLI/train.tsv" ]; then
        for name in train dev_matched; do head -n 200 "$from/glue/MNLI/$name.tsv" >"$to/mnli/$name.tsv"; done
        cp -- "$from/vocab/bert-base-uncased-vocab.txt" "$to/mnli/vocab.txt"
        cp -- "$cairn_root/bench/configs/bert-base.json" "$to/mnli/config.json"
    else
        [ -n "$dry" ] || say "no rows of MNLI in $from: the sample's, and a small model"
        tiny_glue && cp -- "$work"/glue/*.tsv "$to/mnli/" && cp -- "$work/vocab.txt" "$to/mnli/" && cp -- "$work/glue.json" "$to/mnli/config.json"
    fi
    mnli_run "$to/mnli" cpu fp32 "$work/cpu"
    "${run[@]}" >"$work/log" 2>&1 || { tail -n 5 "$work/log" >&2 && die 1 "the run on the CPU failed"; }
    cp -- "$work/cpu/metrics.jsonl" "$to/mnli/cpu.jsonl"
    say "packed: $(du -sh -- "$to" | cut -f 1) in $to"
}

# ---- facts: a line each, with the seconds since the part began, written as they come ----

fact() {
    printf '%s %4d s  %s\n' "$part" $((SECONDS - first_began)) "$*" | tee -a "$results/facts.txt" >&2
}

# one NAME CAP COMMAND...: its output is in $logs/NAME.log; a failure or a skip is a fact with its first lines. What has
# no time left, of its own or of the part, counts as no failure.
one() {
    local name=$1 cap=$2 code=0 start=$SECONDS most words
    shift 2
    most=$(at_most "$cap")
    timeout --kill-after=5 "$most" "$@" >"$logs/$name.log" 2>&1 || code=$?
    words=$({ grep -aE 'ERROR|error:' "$logs/$name.log" || grep -aE 'skipped|failed|differ' "$logs/$name.log"; } | head -n 3 |
        tr '\n' '|' | cut -c 1-400) || true
    [ "$code" -ne 137 ] || [ $((SECONDS - start)) -lt "$most" ] || code=124
    case $code in
    0) fact "ok      $name ($((SECONDS - start)) s)" ;;
    124) fact "no time $name: not done in $((SECONDS - start)) s" && return 0 ;;
    *) fact "FAILED  $name, exit code $code: $words" ;;
    esac
    return "$code"
}

# several: waits for all tests begun before.
several() {
    local id
    for id in "${begun[@]}"; do wait "$id" || complain "a test of $part: see facts.txt"; done
    begun=()
}

begin_first() {
    first_began=$SECONDS logs=$work/logs begun=()
    mkdir -p "$logs"
    tiny_model
}

end_first() {
    several
    keep_logs
    logs=''
    fact "end of $part"
}

step_facts() { # CASE: of each line of its steps
    sed -n "s/.*\"kind\": \"step\", \"case\": \"$1\".*\"policy\": \"\([^\"]*\)\".*\"seq_per_s\": \([^,]*\).*\"cpu_s\": \([^,]*\).*\"open_s\": \([^,]*\).*\"context_bytes\": \([0-9]*\), \"device_bytes\": \([0-9]*\), \"used_bytes\": \([0-9]*\).*\"graphs\": \[\([^]]*\)\].*\"same_bits\": \([a-z]*\).*/\1 \2 \3 \4 \5 \6 \7 \9 \8/p" "$file" |
        while read -r policy speed cpu open context device used bits graphs; do
            fact "        $1 $policy: $speed sequences/s, $(awk "BEGIN { printf \"%.3g\", 1e3 * $cpu }") ms of CPU a step," \
                "bound in $open s, context $((context >> 20)) MiB, $(((used - device - context) / 1048576)) of the 256 MiB margin used," \
                "graphs captured, replayed, refused: $graphs, same bits: $bits"
        done
}

# ---- part: right ----

# The tests, then the facts that a CPU cannot settle. Where nothing opens, the part ends.
part_right() {
    local name step=("$build/bench_step" --backend "$backend" --json "$file")
    begin_first
    (cat "${cublaslt:-/dev/null}" >/dev/null; "$python" -c 'import torch, transformers') >/dev/null 2>&1 & # into the page cache
    [ -n "$dry" ] || fact "$(of_gpu name,driver_version,clocks.sm,power.limit,memory.total); ${libraries[*]}"
    if ! one opens 100 "${step[@]}" --name opens --product 64 "$work/tiny.json" 2 16 1 bf16 none; then
        complain "nothing opens: $(tail -n 1 "$logs/opens.log")"
        end_first
        return 0
    fi
    fact "        $(grep -am 1 ' tokens' "$logs/opens.log" || true)"
    step_facts opens # alone on the device, so its memory is this process's

    op() { # VARIANT PROGRAM VARIABLE...; without a folder for choices no product is timed
        [ -x "$build/tests/ops_$2" ] || { fact "left out op-$2: not built" && return 0; }
        one "op-$2$1" 60 env -u XDG_CACHE_HOME -u HOME "${@:3}" CAIRN_TEST_BACKENDS="$backend" "$build/tests/ops_$2" &
        begun+=($!)
    }
    for name in $(op_programs all); do op '' "$name"; done
    if [ -z "$dry" ]; then
        op -native attention CAIRN_CUDA_NATIVE_ATTENTION=1
        op -native attention_plain CAIRN_CUDA_NATIVE_ATTENTION=1
        op -two-passes attention CAIRN_CUDA_TWO_PASSES=1
    fi
    if CAIRN_CUDA_FUSED_GELU=1 opens; then
        op -fused linear CAIRN_CUDA_FUSED_GELU=1
        one fused 60 env CAIRN_TEST_BACKEND="$backend" CAIRN_TEST_ONLY="$(few test_refusals '*')" \
            "$build/tests/cuda_host/cuda_host_fused" &
        begun+=($!)
    else
        fact "left out GELU in products: $why_not"
    fi
    one training 120 env CAIRN_TEST_BACKEND="$backend" CAIRN_TEST_ONLY="$(few test_dropout_matters '*')" \
        "$build/tests/cuda_host/cuda_host_training" &
    begun+=($!)
    several
    { grep -a 'differ by' "$logs/training.log" || true; } | while read -r name; do fact "        $name"; done

    # shellcheck disable=SC2046 # words
    one bits-base 120 "${step[@]}" --name bits-base --product "$(few 64 2048)" --optimizer lamb --predictions "$(few 3 5)" \
        $([ -n "$dry" ] && echo "$work/tiny.json" 2 16 || echo "$cairn_root/bench/configs/bert-base.json" 8 128) 1 bf16 \
        none lean selective full offload || complain "policies of BERT-Base"
    step_facts bits-base

    mnli_facts fp32 0.001
    mnli_facts bf16 0.05
    end_first
}

# The user's command on rows of MNLI: its losses beside those of the CPU's run.
mnli_facts() { # PRECISION BOUND
    local worst
    [ -r "$kit/mnli/cpu.jsonl" ] || { fact "left out mnli-$1: no kit" && return 0; }
    if [ -n "$dry" ] && [ "$(wc -l <"$kit/mnli/vocab.txt")" -gt 1000 ]; then
        fact "left out mnli-$1: BERT-Base takes too long on the host executor"
        return 0
    fi
    mnli_run "$kit/mnli" "$backend" "$1" "$work/mnli-$1"
    one "mnli-$1" 90 "${run[@]}" || { complain "mnli-$1" && return 0; }
    [ -r "$work/mnli-$1/metrics.jsonl" ] || return 0
    worst=$(paste -d '|' "$kit/mnli/cpu.jsonl" "$work/mnli-$1/metrics.jsonl" | awk -F'"loss": ' '
        { a = $2 + 0; b = $3 + 0; d = a > b ? a - b : b - a; if (NF == 3) n++; if (d > worst) worst = d }
        END { printf "%.3g over %d steps\n", worst, n; exit !(n > 0) }') || { complain "mnli-$1 has no losses" && return 0; }
    fact "        mnli-$1: losses differ from the CPU's in fp32 by at most $worst (bound $2)"
    awk "BEGIN { exit !(${worst%% *} < $2) }" || complain "mnli-$1: losses differ by $worst"
}

# ---- part: fast ----

# A case's steps, as facts too.
fast_case() { # NAME CAP POLICIES FLAG...
    local name=$1 cap=$2 policies=$3 row like=${1%-native}
    read -r -a row < <(cases_table | grep "^${like%-fused} ")
    set_case "${row[@]}" || return 0
    # shellcheck disable=SC2086 # policies are words
    one "$name" "$cap" "$build/bench_step" --backend "$backend" --json "$file" --name "$name" --optimizer lamb \
        --predictions "$predictions" --steps "$(few 1 20)" --product "$(few 64 4096)" "${@:4}" "$config" "$batch" "$length" 1 bf16 $policies ||
        complain "$name"
    step_facts "$name"
}

fast_peer() { # NAME CAP, of the case that was set
    [ -z "$dry" ] || return 0
    timeout --kill-after=5 "$(at_most "$2")" env -u LD_LIBRARY_PATH "$python" "$cairn_root/bench/peer_gpu.py" --model-config "$config" --name "$1" --batch "$batch" \
        --seq "$length" --predictions "$predictions" --steps 10 --rounds 2 --warmup 6 --settings plain >"$logs/peer-$1.log" 2>&1 || true
    grep -a '^{' "$logs/peer-$1.log" >>"$file" || true
    fact "PyTorch $1: $(grep -aoE '"(seq_per_s|why)": [^,}]*' "$logs/peer-$1.log" | tail -n 1)"
}

part_fast() {
    local name
    begin_first
    cp -- "$results"/products-*.txt "$XDG_CACHE_HOME/cairn/" 2>/dev/null || true # of `right`, unless --products names others
    fast_case large-128 150 "none full" --ops --kernels "$logs/large-128-kernels.csv"
    fast_peer large-128 60
    fast_case large-512 90 none
    fast_peer large-512 45
    if CAIRN_CUDA_NATIVE_ATTENTION=1 opens; then
        CAIRN_CUDA_NATIVE_ATTENTION=1 fast_case large-128-native 60 none
        CAIRN_CUDA_NATIVE_ATTENTION=1 fast_case large-512-native 60 none
    else
        fact "left out native attention: $why_not"
    fi
    if CAIRN_CUDA_FUSED_GELU=1 opens; then
        CAIRN_CUDA_FUSED_GELU=1 fast_case large-128-fused 60 "none lean"
    else
        fact "left out GELU in products: $why_not"
    fi
    if [ -z "$dry" ] && command -v compute-sanitizer >/dev/null; then
        sanitized() { # TOOL PROGRAM VARIABLE...
            # shellcheck disable=SC2086 # words
            one "$1-$2" 60 env -u XDG_CACHE_HOME -u HOME "${@:3}" CAIRN_TEST_BACKENDS="$backend" compute-sanitizer --tool "$1" \
                --error-exitcode 1 ${kernels:---kernel-name-exclude regex=cublas|cutlass|gemm|nvjet|xmma} "$build/tests/ops_$2" &
            begun+=($!)
        }
        for name in gelu addnorm embed loss optimizer attention; do sanitized memcheck "$name"; done
        sanitized synccheck attention CAIRN_CUDA_NATIVE_ATTENTION=1
        ! CAIRN_CUDA_FUSED_GELU=1 opens || kernels='--kernel-name kns=GemmUniversal' sanitized memcheck linear CAIRN_CUDA_FUSED_GELU=1
    else
        fact "left out memcheck: no compute-sanitizer"
    fi
    end_first
}
