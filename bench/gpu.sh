#!/usr/bin/env bash
# The GPU backend on a real GPU, in parts of at most nine minutes: a first look, our own speed, PyTorch beside it, tests.
set -euo pipefail
# shellcheck source=hpcai_scripts/common.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/../hpcai_scripts/common.sh"

usage() {
    cat <<'END'
gpu.sh [--part smoke|ours|peer|tests|report]... [flags]     (default: all parts, in this order)

  smoke   six minutes with the build: versions and clocks; the op tests from simple to hard; the products of BERT-Large
          alone, every proposal of cuBLASLt; one step of BERT-Large at 128 and at 512 tokens; failing op tests again
          under CAIRN_CUDA_SYNC=1 and memcheck
  ours    BERT-Large and -Base, padded and packed: steps, every instr on its own, memory, the machine's own rates;
          with several GPUs also sums between them, and a step of one rank each
  peer    PyTorch and Transformers with the same shapes, in the same minutes: plain for all shapes first, then compiled
  tests   ten steps against cpu and ref, fp16's overflows, offload, equal bits of all policies and of two runs, all op
          tests, compute-sanitizer on the small ones; last, two ranks over NCCL (on one GPU if there is one alone), and
          pipelines of two ranks over Gloo
  report  the results as tables, on the standard output; with --write also in bench/RESULTS.md

  --build DIR     a folder that holds the built program (default: build-gpu, which is built here)
  --libs DIR      unpacked packages (DIR/usr/lib/..., DIR/usr/include) for what this machine lacks, to build and to run
  --results DIR   takes gpu-<GPU>-<part>.jsonl, written as they come, gpu-<GPU>-<case>-kernels.csv for
                  `cairn plan --costs`, and the chosen products (default: $OUT where that is a folder, else bench/results)
  --products DIR  chosen products (products-*.txt) of an earlier call: without them two calls may differ in bits
  --lengths DIR   holds other tables of lengths than bench/lengths
  --python FILE   a Python with PyTorch and Transformers (default: python3)
  --arch LIST     CAIRN_CUDA_ARCHITECTURES of a build made here (default: 90a)
  --minutes N     of each part, the build included (default 9; smoke: 6)
  --resume        keeps the results of an earlier call and measures what is missing; else a part starts again
  --case NAME     of ours and peer only this case; several times for several
  --dry-run       everything on the host executor with tiny shapes: proves this script, measures nothing

Exit codes: 0 done, 1 a test failed or a result is wrong, 2 wrong use. A part that runs out of time says what it left out.
END
}

parts=() cases=() build='' libs='' results='' products='' lengths=$cairn_root/bench/lengths python=python3 arch=90a minutes=''
resume='' dry='' backend=cuda write=''
while [ $# -gt 0 ]; do
    flag=$1
    shift
    case $flag in
    -h | --help) usage && exit 0 ;;
    --resume) resume=1 && continue ;;
    --dry-run) dry=1 && continue ;;
    --write) write=--write && continue ;;
    --part | --build | --libs | --results | --products | --lengths | --python | --arch | --minutes | --case) ;;
    *) die 2 "unknown flag '$flag'; see --help" ;;
    esac
    [ $# -gt 0 ] || die 2 "$flag: expected a value"
    case $flag in
    --part)
        case $1 in
        smoke | ours | peer | tests | report) parts+=("$1") ;;
        *) die 2 "--part '$1': expected smoke, ours, peer, tests or report" ;;
        esac
        ;;
    --case) cases+=("$1") ;;
    --minutes) [[ $1 =~ ^[0-9]+$ ]] || die 2 "--minutes '$1': expected a number" && minutes=$1 ;;
    --build) build=$(cd -- "$1" 2>/dev/null && pwd) || die 2 "--build $1: no such folder" ;;
    --libs) libs=$(cd -- "$1" 2>/dev/null && pwd) || die 2 "--libs $1: no such folder" ;;
    --lengths) lengths=$(cd -- "$1" 2>/dev/null && pwd) || die 2 "--lengths $1: no such folder" ;;
    --products) products=$(cd -- "$1" 2>/dev/null && pwd) || die 2 "--products $1: no such folder" ;;
    --results) results=$1 ;;
    --python) python=$1 ;;
    --arch) arch=$1 ;;
    esac
    shift
done
[ ${#parts[@]} -gt 0 ] || parts=(smoke ours peer tests report)
[ -z "$dry" ] || [ ${#cases[@]} -gt 0 ] || cases=(large-128 large-128-policies large-128-any-order large-128-two-passes large-128-native large-512 large-wiki large-128-16gib base-mnli ranks-2 large-{128,512,wiki}-attention-{own,cudnn})

work=$(mktemp -d)
if [ -z "$results" ]; then
    results=$cairn_root/bench/results
    [ -z "$dry" ] || results=$work/results
    if [ -n "${OUT:-}" ] && [ -d "$OUT" ]; then results=$OUT; fi
fi
mkdir -p -- "$results"
results=$(cd -- "$results" && pwd)
began=$SECONDS # of the next part: a build counts as a part of the first
keep_products() { cp -f -- "$work"/cache/cairn/products-*.txt "$results"/ 2>/dev/null || true; }
give_back() {
    keep_products
    rm -rf -- "$work"
}
trap give_back EXIT

# ---- what runs ----

if [ -n "$libs" ]; then # packages unpacked elsewhere than where they were made for
    triple=$(gcc -print-multiarch 2>/dev/null || echo x86_64-linux-gnu)
    export LD_LIBRARY_PATH=$libs/usr/lib/$triple:$libs/usr/lib:$libs/lib/$triple${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
    export PKG_CONFIG_SYSROOT_DIR=$libs PKG_CONFIG_ALLOW_SYSTEM_CFLAGS=1 PKG_CONFIG_ALLOW_SYSTEM_LIBS=1
    export PKG_CONFIG_PATH=$libs/usr/lib/$triple/pkgconfig:$libs/usr/share/pkgconfig CMAKE_PREFIX_PATH=$libs/usr
    export LIBRARY_PATH=$libs/usr/lib/$triple CPATH=$libs/usr/include
    PATH=$libs/usr/bin:$PATH
fi

# ---- libraries: the loader's, the toolkit's, or those of Python wheels ----

# library NAME FILE HEADER VERSION-MACRO...: prints where it is, and takes a wheel's folder where nothing else has it.
library() {
    local name=$1 file=$2 header=$3 found='' include='' version='' folder
    local headers=(${CUDA_HOME:+"$CUDA_HOME/include"} /usr/local/cuda/include /usr/include "/usr/include/$(gcc -print-multiarch 2>/dev/null)")
    shift 3
    found=$( (ldconfig -p 2>/dev/null || true) | sed -n "s|.*$file .*=> ||p" | head -n 1)
    for folder in ${LD_LIBRARY_PATH:+${LD_LIBRARY_PATH//:/ }} /usr/local/cuda/lib64 /usr/local/cuda/targets/x86_64-linux/lib "${wheels[@]/%//lib}"; do
        [ -n "$found" ] || [ ! -e "$folder/$file" ] || found=$folder/$file
    done
    for folder in ${CPATH:+${CPATH//:/ }} "${headers[@]}" "${wheels[@]/%//include}"; do
        [ -n "$include" ] || [ ! -e "$folder/$header" ] || include=$folder
    done
    if [ -n "$include" ]; then
        version=$( (cat "$include/$header" "$include/${header%.h}_version.h" "$include/cublas_api.h" 2>/dev/null || true) |
            awk -v macros="$*" '{ for (i = split(macros, m, " "); i > 0; i--) if ($1 == "#define" && $2 == m[i]) v[i] = $3 }
                END { for (i = 1; i <= split(macros, m, " "); i++) printf "%s%s", (i > 1 ? "." : ""), v[i] }')
    fi
    say "$(printf '%-9s headers %s in %s, library %s' "$name" "${version:-?}" "${include:-no folder: what needs it is left out}" "${found:-not found}")"
    libraries+=("$name: ${version:-?} $include $found")
    case $found in /usr/lib/* | /lib/* | '') ;; *) LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$(dirname -- "$found") ;; esac
    case $include in /usr/include* | '') ;; *) CPATH=${CPATH:+$CPATH:}$include ;; esac
    [ "$name" != cuDNN ] || [ -z "$found" ] || export CAIRN_CUDNN=${CAIRN_CUDNN:-$found}
}

libraries=()
find_libraries() {
    local folder
    wheels=()
    while read -r folder; do wheels+=("$folder"); done < <("$python" -c 'import glob, site
for base in site.getsitepackages() + [site.getusersitepackages()]:
    print("\n".join(glob.glob(base + "/nvidia/*/") or []))' 2>/dev/null | sed '/^$/d; s|/$||')
    library cuBLASLt libcublasLt.so.13 cublasLt.h CUBLAS_VER_MAJOR CUBLAS_VER_MINOR CUBLAS_VER_PATCH
    library cuDNN libcudnn.so.9 cudnn.h CUDNN_MAJOR CUDNN_MINOR CUDNN_PATCHLEVEL
    library NCCL libnccl.so.2 nccl.h NCCL_MAJOR NCCL_MINOR NCCL_PATCH
    export LD_LIBRARY_PATH CPATH CMAKE_INCLUDE_PATH=$CPATH CMAKE_LIBRARY_PATH=$LD_LIBRARY_PATH
}
PATH=$PATH:/usr/local/cuda/bin:/usr/sbin:/sbin # ldconfig

# of_gpu FIELDS: of the first GPU, as nvidia-smi writes them; nothing where it fails.
of_gpu() {
    local all
    all=$(nvidia-smi --query-gpu="$1" --format=csv,noheader,nounits 2>/dev/null) || return 0
    echo "${all%%$'\n'*}"
}
if [ -n "$dry" ]; then
    backend=cuda_host
    gpu="dry-run"
else
    command -v nvidia-smi >/dev/null || die 2 "there is no nvidia-smi here, so no GPU; --dry-run proves the script without one"
    gpu=$(of_gpu name | tr -c 'A-Za-z0-9\n' '-' | tr '[:upper:]' '[:lower:]' | sed 's/-$//')
    [ -n "$gpu" ] || die 2 "nvidia-smi finds no GPU: $(nvidia-smi 2>&1 | sed -n 1p)"
    find_libraries
fi

# What measures must build; a test that does not is left out.
build_here() {
    local generator=() log=$cairn_root/build-gpu/build.log go_on target
    build=$cairn_root/build-gpu
    mkdir -p "$build"
    [ -f "$build/CMakeCache.txt" ] || ! command -v ninja >/dev/null || generator=(-G Ninja)
    say "building in $build for $arch (its log: build.log)"
    make_targets() { cmake --build "$build" --parallel "$(nproc)" "$@" >>"$log" 2>&1; }
    if ! cmake -S "$cairn_root" -B "$build" "${generator[@]}" -DWITH_CUDA="$([ -n "$dry" ] && echo OFF || echo ON)" \
        -DCAIRN_CUDA_ARCHITECTURES="$arch" -DCAIRN_WERROR=OFF >"$log" 2>&1 ||
        ! make_targets --target cairn bench_step "backend_$backend"; then
        tail -n 40 "$log" >&2
        die 1 "building failed"
    fi
    for target in $([ -n "$dry" ] || echo bench_products) bench_gpus; do
        make_targets --target "$target" || say "$target is not built"
    done
    go_on=-k
    [ ! -f "$build/build.ninja" ] || go_on=-k0
    make_targets -- "$go_on" || say "something is not built: what needs it is left out"
}

needs_build=''
for part in "${parts[@]}"; do
    case $part in smoke | tests | ours) needs_build=1 ;; esac
done
if [ -n "$needs_build" ]; then
    [ -n "$build" ] || build_here
    for file in cairn bench_step "cairn_$backend.so"; do
        [ -e "$build/$file" ] || die 2 "$build has no $file; build the targets cairn, bench_step and backend_$backend there"
    done
    export CAIRN_BACKEND_DIR=$build
fi
# A dry run has the library that stands in cuDNN's place in the tests.
[ -z "$dry" ] || [ ! -e "$build/tests/cuda_host/fake_cudnn.so" ] || export CAIRN_CUDNN=$build/tests/cuda_host/fake_cudnn.so
export XDG_CACHE_HOME=$work/cache # products are chosen once for the whole call
mkdir -p "$XDG_CACHE_HOME/cairn"
[ -z "$products" ] || cp -- "$products"/products-*.txt "$XDG_CACHE_HOME/cairn/" || die 2 "--products $products: no products-*.txt there"

# ---- results: one JSON object a line; of two with the same names the later one counts ----

begin_part() {
    part=$1
    file=$results/gpu-$gpu-$part.jsonl
    deadline=$((${began:-$SECONDS} + 60 * ${minutes:-$([ "$part" = smoke ] && echo 6 || echo 9)}))
    began=''
    [ -n "$resume" ] || : >"$file"
    touch "$file"
    say "== $part, on $gpu, at most $((deadline - SECONDS)) seconds =="
    local commit driver=''
    commit=$(git -C "$cairn_root" rev-parse --short HEAD 2>/dev/null || echo unknown)
    [ -n "$dry" ] || driver=$(of_gpu driver_version,power.limit,clocks.max.sm)
    [ ${#libraries[@]} -eq 0 ] || record libraries found "$(IFS=';' && echo "${libraries[*]}")"
    record run commit "$commit" date "$(date -u +%Y-%m-%dT%H:%M:%SZ)" gpu "$gpu" driver "$driver" backend "$backend"
}

# record KIND NAME VALUE...: values are texts without quotes in them, or numbers written as they are.
record() {
    local line="{\"kind\": \"$1\"" value
    shift
    while [ $# -gt 1 ]; do
        value=${2//[\"\\]/}
        [[ $value =~ ^-?(0|[1-9][0-9]*)(\.[0-9]+)?$ ]] || value="\"${value//[[:cntrl:]]/ }\""
        line+=", \"$1\": $value"
        shift 2
    done
    printf '%s}\n' "$line" >>"$file"
}

left() { echo $((deadline - SECONDS)); }
at_most() { # SECONDS; 1 where there is no time: 0 would be no limit
    local n
    n=$(left)
    [ "$n" -lt "$1" ] || n=$1
    [ "$n" -gt 0 ] && echo "$n" || echo 1
}

# wanted KIND CASE SECONDS: not excluded by --case, not measured before, and there is time.
wanted() {
    local name=${2%%\"*}
    if [ "$1" != test ] && [ ${#cases[@]} -gt 0 ] && [[ " ${cases[*]} " != *" $name "* ]]; then return 1; fi
    if [ -n "$resume" ] && grep -q "\"kind\": \"$1\", \"case\": \"$2\"" "$file"; then return 1; fi
    [ "$(left)" -lt "$3" ] || return 0
    record left_out case "$name" why "no time left"
    say "$name: left out, no time left"
    return 1
}

failures=0
complain() {
    say "FAILED: $*"
    failures=$((failures + 1))
}

# The most device memory that was in use meanwhile, and before.
with_memory() { # CASE CAP COMMAND...
    local name=$1 cap=$2 code=0 watcher='' before peak start=$SECONDS most
    shift 2
    if [ -z "$dry" ]; then
        before=$(of_gpu memory.used)
        nvidia-smi --query-gpu=memory.used --format=csv,noheader,nounits --loop-ms=100 >"$work/memory" 2>/dev/null &
        watcher=$!
    fi
    most=$(at_most "$cap")
    timeout --kill-after=10 "$most" "$@" || code=$?
    if [ -n "$watcher" ]; then
        kill "$watcher" 2>/dev/null || true
        wait "$watcher" 2>/dev/null || true
        peak=$(sed -n 's/^\([0-9]*\).*/\1/p' "$work/memory" | sort -n | tail -n 1)
        if [ -n "$peak" ] && [[ $before =~ ^[0-9]+$ ]]; then record memory case "$name" before_mib "$before" peak_mib "$peak"; fi
    fi
    keep_products
    # 137: it took no notice of the first signal, or was killed for its memory
    [ "$code" -ne 137 ] || [ $((SECONDS - start)) -lt "$most" ] || code=124
    case $code in
    0) ;;
    124) record left_out case "$name" why "took longer than $most s" ;;
    *) record failed case "$name" policy '' why "exit code $code" ;;
    esac
    return "$code"
}

# ---- part: tests ----

tiny_model() {
    cat >"$work/tiny.json" <<'END'
{"vocab_size": 500, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 128,
 "max_position_embeddings": 128, "hidden_act": "gelu", "hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1}
END
    printf '2 1\n5 2\n9 3\n16 2\n' >"$work/tiny.tsv"
}

# A hanging test costs its cap, not the part.
run_test() { # NAME COMMAND...
    local name=$1 code=0 start=$SECONDS verdict most
    most=${cap:-$(few 600 60)} # the host executor is slow
    shift
    wanted test "$name" 10 || return 0
    (cd -- "$cairn_root" && timeout --kill-after=10 "$(at_most "$most")" "$@") >"$work/log" 2>&1 || code=$?
    case $code in 0) verdict=passed ;; 77) verdict=skipped ;; 124) verdict='no time left' ;; *) verdict=failed ;; esac
    [ "$code" -ne 124 ] || [ $((SECONDS - start)) -lt "$most" ] || verdict=failed # it hangs, or is far too slow
    record test case "$name" verdict "$verdict" seconds $((SECONDS - start))
    say "$(printf '%-28s %s' "$name" "$verdict")"
    if [ "$verdict" = failed ]; then
        complain "$name (exit code $code)"
        tail -n 15 "$work/log" >&2
    fi
}

# ---- ranks: one process each, here ----

# find_gpus CASE FILE...: sets gpus, and what ranks need. False: this build lacks a file.
find_gpus() {
    local case=$1 file
    shift
    for file in "$@"; do
        [ -e "$build/$file" ] || { record left_out case "$case" why "no $file" && return 1; }
    done
    rank_flags=()
    if [ -n "$dry" ]; then
        gpus=2
        rank_flags=(CAIRN_TEST_CUDA_HOST_DEVICE=256 CAIRN_TEST_CUDA_HOST_GPUS=2)
    else
        gpus=$(nvidia-smi --query-gpu=name --format=csv,noheader | wc -l)
        [ "$gpus" -gt 1 ] || rank_flags=(CAIRN_SHARED_GPU=1)
    fi
    cat >"$work/ranks" <<'END'
#!/usr/bin/env bash
# ranks N COMMAND...: so many processes, that know of each other. Ends with the code of the last one that failed.
n=$1 meet=$(mktemp -d) ids=() worst=0
shift
trap 'kill "${ids[@]}" 2>/dev/null; rm -rf -- "$meet"' EXIT
trap 'exit 143' TERM
for ((r = 0; r < n; r++)); do
    RANK=$r WORLD_SIZE=$n LOCAL_RANK=$r LOCAL_WORLD_SIZE=$n MASTER_ADDR=127.0.0.1 MASTER_PORT=29400 \
        CAIRN_RENDEZVOUS=file:$meet "$@" &
    ids+=($!)
done
for id in "${ids[@]}"; do wait "$id" || worst=$?; done
exit "$worst"
END
}

# Over NCCL.
find_ranks() {
    local twin=tests/cuda_host/nccl/libnccl.so.2
    find_gpus ranks bench_gpus cairn_nccl.so cairn_gloo.so ${dry:+"$twin"} || return 1
    [ -z "$dry" ] || rank_flags+=(LD_LIBRARY_PATH="$build/${twin%/*}")
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
        record left_out case pipelines why "one GPU, which two processes may not share"
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

# Sums between all GPUs, and how a step of one rank on each compares with one alone.
our_ranks() {
    local code=0 model=$cairn_root/bench/configs/bert-large.json
    find_ranks || return 0
    wanted ranks "ranks-$gpus" "$(few 5 60)" || return 0
    if [ "$gpus" -lt 2 ]; then
        record left_out case "ranks-$gpus" why "one GPU"
        return 0
    fi
    [ -z "$dry" ] || { tiny_model && model=$work/tiny.json; }
    timeout --kill-after=10 "$(at_most 600)" env "${rank_flags[@]}" bash "$work/ranks" "$gpus" "$build/bench_gpus" --backend "$backend" \
        --name "ranks-$gpus" --json "$file" --most "$(few 1 1024)" --steps "$(few 1 20)" "$model" "$(few 1 64)" "$(few 16 128)" ||
        code=$?
    [ "$code" -eq 0 ] || [ "$code" -eq 124 ] || complain "ranks-$gpus (exit code $code)"
}

# golden NAME PROGRAM PATTERN: tests of a tiny model's training, as on the host executor; the pattern chooses among them.
golden() {
    local program=$build/tests/cuda_host/$2
    [ -x "$program" ] || { record left_out case "$1" why "not built" && return 0; }
    run_test "$1" env CAIRN_TEST_BACKEND="$backend" CAIRN_TEST_ONLY="$3" CAIRN_TEST_MAY_SKIP=1 "$program"
}

# The programs of tests/ops, from simple to hard, so that the first failure names the layer. WHICH: all, or small (those
# that compute-sanitizer can run within a minute).
op_programs() {
    local name small='gelu tanh dropout pack gather addnorm embed loss' all=''
    for name in "$build"/tests/ops_*; do all+=" ${name##*/ops_}"; done
    [ -z "$dry" ] || { echo gelu tanh && return; }
    [ "$1" = all ] || { echo "$small attention" && return; }
    # shellcheck disable=SC2086 # words
    printf '%s\n' $small optimizer slices linear mlm_xent attention attention_plain $all | awk '!seen[$1]++' | tr '\n' ' '
}

failed_ops=() # of this part
op_test() { # NAME
    local before=$failures program=$build/tests/ops_$1
    [ -x "$program" ] || { record left_out case "op-$1" why "not built" && return 0; }
    run_test "op-$1" env CAIRN_TEST_BACKENDS="$backend" CAIRN_TEST_MAY_SKIP=1 "$program"
    [ "$failures" -eq "$before" ] || failed_ops+=("$1")
}

# Each op that failed again, so that its first fault is named.
failed_ops_again() {
    local name run
    for name in "${failed_ops[@]}"; do
        run=(env CAIRN_TEST_BACKENDS="$backend" CAIRN_TEST_MAY_SKIP=1)
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
    golden ten-steps cuda_host_training "$(few test_ten_steps '*')"
    golden fp16-overflow cuda_host_training test_overflow_in_graphs
    golden offload cuda_host_offload "$(few test_rows '*')"
    for type in bf16 fp32; do # bench_step fails if the weights after its steps differ between policies or rounds
        run_test "bits-$type" "$build/bench_step" --backend "$backend" --predictions 5 --optimizer lamb --product 64 \
            "$work/tiny.json" "$(few 3 8)" 16 2 "$type" none full
        run_test "bits-packed-$type" "$build/bench_step" --backend "$backend" --lengths "$work/tiny.tsv" --product 64 \
            "$work/tiny.json" "$(few 2 8)" 16 1 "$type" none lean ffn selective half-attention full offload every:2
    done
    for name in $(op_programs all); do op_test "$name"; done
    failed_ops_again
    if has_cudnn; then
        run_test op-attention-cudnn env CAIRN_TEST_BACKENDS="$backend" CAIRN_TEST_ATTENTION=cudnn "$build/tests/ops_attention_plain"
        golden cudnn cuda_host_cudnn "$(few test_training '*')"
    else
        record left_out case op-attention-cudnn why "no cuDNN in this build, or none that loads"
    fi
    if CAIRN_CUDA_NATIVE_ATTENTION=1 opens; then
        run_test op-attention-native env CAIRN_TEST_BACKENDS="$backend" CAIRN_CUDA_NATIVE_ATTENTION=1 "$build/tests/ops_attention$(few _plain '')"
    else
        record left_out case op-attention-native why "no native attention: $(tail -n 1 "$work/opens")"
    fi
    # Without a folder for the choices no product is timed; the library's own kernels are excluded.
    for tool in memcheck racecheck initcheck synccheck; do
        if [ -n "$dry" ] || ! command -v compute-sanitizer >/dev/null; then
            record left_out case "sanitizer-$tool" why "no compute-sanitizer"
            continue
        fi
        for name in $(op_programs small); do
            run_test "sanitizer-$tool-$name" env -u HOME -u XDG_CACHE_HOME CAIRN_TEST_BACKENDS="$backend" CAIRN_TEST_MAY_SKIP=1 \
                compute-sanitizer --tool "$tool" --error-exitcode 1 --kernel-name-exclude regex=nvjet \
                --kernel-name-exclude regex=cutlass --kernel-name-exclude regex=xmma "$build/tests/ops_$name"
        done
    done
    test_ranks # late: several ranks on one GPU may hang, which NCCL does not support
    test_pipelines
}

# ---- part: smoke ----

# The ops that other ops need come first, then the figures that decide most; what takes long comes last. `held`: seconds
# that the op tests leave for the figures, however many of them hang.
part_smoke() {
    local name row held step_cap=90 later=()
    held=$(few 0 200)
    if [ -z "$dry" ]; then
        nvidia-smi --query-gpu=name,driver_version,clocks.sm,clocks.mem,temperature.gpu,power.draw,memory.free --format=csv >&2 || true
        record compilers gcc "$(gcc --version | head -n 1)" nvcc "$(nvcc --version 2>/dev/null | tail -n 1)"
    fi
    for name in $(op_programs all); do
        if [ "$(left)" -gt "$held" ]; then
            cap=$(few 600 30) op_test "$name"
        else
            later+=("$name")
        fi
    done
    if [ -n "$dry" ] || [ ! -x "$build/bench_products" ]; then
        record left_out case products why "no GPU, or bench_products is not built"
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

# few DRY REAL: the number to use.
few() { [ -n "$dry" ] && echo "$1" || echo "$2"; }

# ---- the cases of both other parts ----

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
        record left_out case "$name" why "no $file_name"
        say "$name: left out, no $file_name"
        return 1
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
    [ "$code" -eq 0 ] || [ "$code" -eq 124 ] || complain "$name (exit code $code)"
}

# What a fixed order of sums costs: the same step with products that may add in an order of chance. One round, one
# policy: two would not have the same bits. Our own kernels have no such variant.
any_order() { # NAME ROW-OF-THE-TABLE...
    export CAIRN_CUDA_ANY_ORDER=1
    our_case "$1" none '' "${@:2}"
    unset CAIRN_CUDA_ANY_ORDER
}

# Attention's backward in two kernels, as for long sequences, beside the one that is taken up to 512 tokens.
two_passes() { # NAME ROW-OF-THE-TABLE...
    export CAIRN_CUDA_TWO_PASSES=1
    our_case "$1" none "$(few '' --ops)" "${@:2}"
    unset CAIRN_CUDA_TWO_PASSES
}

# Attention by wgmma, or its forward by tcgen05, which GPUs of compute capability 9.0 or 10.0 have, beside the one that is taken.
native_attention() { # NAME ROW-OF-THE-TABLE...
    export CAIRN_CUDA_NATIVE_ATTENTION=1
    if opens; then
        our_case "$1" none "$(few '' --ops)" "${@:2}"
    else
        record left_out case "$1" why "no native attention: $(tail -n 1 "$work/opens")"
        say "$1: left out, no native attention"
    fi
    unset CAIRN_CUDA_NATIVE_ATTENTION
}

# Attention by cuDNN beside our own: a step without dropout, for cuDNN's is used for nothing else.
both_attentions() { # ROW-OF-THE-TABLE...
    local kind
    for kind in own cudnn; do
        if [ "$kind" = cudnn ] && ! has_cudnn; then
            record left_out case "$1-attention-cudnn" why "no cuDNN in this build, or none that loads"
            say "$1-attention-cudnn: left out, no cuDNN"
            continue
        fi
        more="--dropout 0 --attention $kind" our_case "$1-attention-$kind" "none full" "$(few '' --ops)" "$@"
    done
}

has_cudnn() { opens --dropout 0 --attention cudnn; }

# bench_step opens with these flags and the environment: a step of the tiny model. 2: it does not, and says why.
opens() { # FLAG...
    local code=0
    tiny_model
    timeout --kill-after=10 "$(at_most 60)" "$build/bench_step" --backend "$backend" "$@" --product 64 "$work/tiny.json" \
        2 16 1 bf16 none >"$work/opens" 2>&1 || code=$?
    [ "$code" -ne 2 ] || tail -n 1 "$work/opens"
    [ "$code" -ne 2 ]
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
        [ "$code" -eq 0 ] || [ "$code" -eq 124 ] || complain "$name (exit code $code)"
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
    for name in large-128 large-512 large-wiki base-mnli; do row_of "$name" && two_passes "$name-two-passes" "${row[@]}"; done
    for name in large-128 large-512 large-wiki base-mnli; do row_of "$name" && native_attention "$name-native" "${row[@]}"; done
    row_of large-128 && any_order large-128-any-order "${row[@]}"
    for name in base-wiki large-mnli base-mnli; do row_of "$name" && our_case "$name" "none lean" '' "${row[@]}"; done
    our_ranks
}

# ---- part: peer ----

part_peer() {
    local row device=cuda settings flags sequences
    [ -z "$dry" ] || device=cpu
    if ! "$python" -c 'import torch, transformers' 2>/dev/null; then
        record left_out case peer why "$python has no PyTorch and Transformers"
        say "$python has no PyTorch and Transformers: the peer is left out"
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

part_report() {
    if ! command -v "$python" >/dev/null || ! "$python" -c '' 2>/dev/null; then
        say "$python cannot be run: no report"
        return 0
    fi
    # shellcheck disable=SC2086 # empty or a flag
    "$python" "$cairn_root/bench/gpu_report.py" $write --gpu "$gpu" "$results"
}

for part in "${parts[@]}"; do
    [ "$part" = report ] || begin_part "$part"
    "part_$part"
done
[ "$failures" -eq 0 ] || die 1 "$failures failed"
