#!/usr/bin/env bash
# The GPU backend on a real GPU, in parts of at most nine minutes: a first look, our own speed, PyTorch beside it, tests.
set -euo pipefail
# shellcheck source=hpcai_scripts/common.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/../hpcai_scripts/common.sh"

usage() {
    cat <<'END'
gpu.sh [--part first|smoke|ours|peer|tests|variability|report]... [flags]     (default: all but first, in this order)
gpu.sh --pack DIR [flags]

  first   what a lease of 15 minutes allows, with --kit: right and fast, which are parts too
  right   four minutes: op tests, training, equal bits of all policies of BERT-Base, memory, MNLI beside the CPU's losses
  fast    five minutes: BERT-Large at 128 and 512 tokens, PyTorch beside it, native attention, GELU in products, compute-sanitizer
  smoke   six minutes with the build: versions and clocks; the op tests from simple to hard; the products of BERT-Large
          alone, every proposal of cuBLASLt; one step of BERT-Large at 128 and at 512 tokens; failing op tests again
          under CAIRN_CUDA_SYNC=1 and memcheck
  ours    BERT-Large and -Base, padded and packed: steps, every instr on its own, memory, the machine's own rates;
          with several GPUs also sums between them, and a step of one rank each
  peer    PyTorch and Transformers with the same shapes, in the same minutes: plain for all shapes first, then compiled
  tests   ten steps against cpu and ref, fp16's overflows, offload, equal bits of all policies and of two runs, all op
          tests, pipelines of two ranks over Gloo, compute-sanitizer on the small op tests; last, two ranks over NCCL (on
          one GPU if there is one alone)
  variability
          250 iterations of BERT-Large phase 1, twice, on all GPUs: the time of each step and GPU, clocks, temperatures,
          and what `cairn variability` says of them
  report  the results as tables, on the standard output; with --write also in bench/RESULTS.md

  --pack DIR      builds here, without a GPU, all that --kit needs elsewhere: programs, libraries, rows of MNLI with the
                  losses of a run on the CPU (CAIRN_TEST_DATA: the folder that has glue/MNLI and vocab); some 40 MB
  --kit DIR       runs what --pack left in DIR; facts.txt in the results has a line each, as they come
  --build DIR     a folder that holds the built program (default: build-gpu, which is built here)
  --libs DIR      unpacked packages (DIR/usr/lib/..., DIR/usr/include) for what this machine lacks, to build and to run
  --results DIR   takes gpu-<GPU>-<part>.jsonl, written as they come, gpu-<GPU>-<case>-kernels.csv for
                  `cairn plan --costs`, and the chosen products (default: $OUT where that is a folder, else bench/results)
  --products DIR  chosen products (products-*.txt) of an earlier call: without them two calls may differ in bits
  --lengths DIR   holds other tables of lengths than bench/lengths
  --python FILE   a Python with PyTorch and Transformers (default: python3)
  --arch LIST     CAIRN_CUDA_ARCHITECTURES of a build made here (default: 90a)
  --minutes N     of each part, the build included (default 9; smoke: 6; right: 230 s, fast: 320 s)
  --resume        keeps the results of an earlier call and measures what is missing; else a part starts again
  --case NAME     of ours and peer only this case; several times for several
  --dry-run       everything on the host executor with tiny shapes: proves this script, measures nothing

Exit codes: 0 done, 1 a test failed or a result is wrong, 2 wrong use. A part that runs out of time says what it left out.
END
}

parts=() cases=() build='' libs='' kit='' pack='' results='' products='' lengths=$cairn_root/bench/lengths python=python3 arch=90a minutes=''
resume='' dry='' backend=cuda write=''
while [ $# -gt 0 ]; do
    flag=$1
    shift
    case $flag in
    -h | --help) usage && exit 0 ;;
    --resume) resume=1 && continue ;;
    --dry-run) dry=1 && continue ;;
    --write) write=--write && continue ;;
    --part | --pack | --kit | --build | --libs | --results | --products | --lengths | --python | --arch | --minutes | --case) ;;
    *) die 2 "unknown flag '$flag'; see --help" ;;
    esac
    [ $# -gt 0 ] || die 2 "$flag: expected a value"
    case $flag in
    --part)
        case $1 in
        first) parts+=(right fast) ;;
        right | fast | smoke | ours | peer | tests | variability | report) parts+=("$1") ;;
        *) die 2 "--part '$1': expected first, right, fast, smoke, ours, peer, tests, variability or report" ;;
        esac
        ;;
    --case) cases+=("$1") ;;
    --minutes) [[ $1 =~ ^[0-9]+$ ]] || die 2 "--minutes '$1': expected a number" && minutes=$1 ;;
    --pack) pack=$1 ;;
    --kit) kit=$(cd -- "$1" 2>/dev/null && pwd) || die 2 "--kit $1: no such folder" ;;
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
[ ${#parts[@]} -gt 0 ] || [ -n "$pack" ] || parts=(smoke ours peer tests variability report)
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
logs='' # of part right or fast, in $work
keep_logs() { [ -z "$logs" ] || tar -C "$logs" -czf "$results/logs-$part.tgz" .; }
keep_products() { cp -f -- "$work"/cache/cairn/products-*.txt "$results"/ 2>/dev/null || true; }
give_back() {
    local id
    for id in $(jobs -p); do pkill -P "$id" 2>/dev/null || true; done # what a stopped part still runs
    keep_products
    keep_logs
    rm -rf -- "$work"
}
trap give_back EXIT

# ---- what runs ----

if [ -n "$kit" ]; then
    build=$kit/build
    export LD_LIBRARY_PATH=$kit/libs${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
fi
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
    [ "$name" != cuBLASLt ] || cublaslt=$found
    [ "$name" != cuDNN ] || [ -z "$found" ] || export CAIRN_CUDNN=${CAIRN_CUDNN:-$found}
}

libraries=() cublaslt=''
find_libraries() {
    local folder
    wheels=()
    while read -r folder; do wheels+=("$folder"); done < <("$python" -c 'import glob, site
for base in site.getsitepackages() + [site.getusersitepackages()]:
    print("\n".join(glob.glob(base + "/nvidia/*/") or []))' 2>/dev/null | sed '/^$/d; s|/$||')
    library cuBLASLt libcublasLt.so.13 cublasLt.h CUBLAS_VER_MAJOR CUBLAS_VER_MINOR CUBLAS_VER_PATCH
    library cuDNN libcudnn.so.9 cudnn.h CUDNN_MAJOR CUDNN_MINOR CUDNN_PATCHLEVEL
    library NCCL libnccl.so.2 nccl.h NCCL_MAJOR NCCL_MINOR NCCL_PATCH
    export LD_LIBRARY_PATH CPATH CMAKE_INCLUDE_PATH=${CPATH:-} CMAKE_LIBRARY_PATH=${LD_LIBRARY_PATH:-}
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
elif [ -z "$pack" ]; then
    command -v nvidia-smi >/dev/null || die 2 "there is no nvidia-smi here, so no GPU; --dry-run proves the script without one"
    gpu=$(of_gpu name | tr -c 'A-Za-z0-9\n' '-' | tr '[:upper:]' '[:lower:]' | sed 's/-$//')
    [ -n "$gpu" ] || die 2 "nvidia-smi finds no GPU: $(nvidia-smi 2>&1 | sed -n 1p)"
    find_libraries
fi

# What measures must build; a test that does not is left out.
build_here() {
    local generator=() log=$cairn_root/build-gpu/build.log go_on target tests
    build=$cairn_root/build-gpu
    mkdir -p "$build"
    [ -f "$build/CMakeCache.txt" ] || ! command -v ninja >/dev/null || generator=(-G Ninja)
    say "building in $build for $arch (its log: build.log)"
    make_targets() { cmake --build "$build" --parallel "$(nproc)" "$@" >>"$log" 2>&1; }
    if ! cmake -S "$cairn_root" -B "$build" "${generator[@]}" -DWITH_CUDA="$([ -n "$dry" ] && echo OFF || echo ON)" \
        -DCAIRN_CUDA_ARCHITECTURES="$arch" >"$log" 2>&1 ||
        ! make_targets --target cairn bench_step "backend_$backend"; then
        tail -n 40 "$log" >&2
        die 1 "building failed"
    fi
    for target in $([ -n "$dry" ] || echo bench_products) bench_gpus; do
        make_targets --target "$target" || say "$target is not built"
    done
    go_on=-k
    [ ! -f "$build/build.ninja" ] || go_on=-k0
    # Not all: on a fresh machine the host executor and the other tests would take time from what is measured.
    mapfile -t tests < <(cmake --build "$build" --target help | grep -oE "$test_targets" | sort -u)
    make_targets --target "${tests[@]}" -- "$go_on" || say "something is not built: what needs it is left out"
}
test_targets='\b(ops_[a-z_]+|cuda_host_(training|offload|cudnn)|transport_(gloo|nccl)|nccl_twin|fake_cudnn)\b'

needs_build=''
for part in "${parts[@]}"; do
    case $part in right | fast | smoke | tests | ours | variability) needs_build=1 ;; esac
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
    local seconds
    case $part in right) seconds=230 ;; fast) seconds=320 ;; smoke) seconds=360 ;; *) seconds=540 ;; esac
    [ -z "$minutes" ] || seconds=$((60 * minutes))
    deadline=$((${began:-$SECONDS} + seconds))
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

leave_out() { # CASE WHY
    record left_out case "$1" why "$2"
    say "$1: left out, $2"
}

left() { echo $((deadline - SECONDS)); }
at_most() { # SECONDS; 1 where there is no time: 0 would be no limit. The host executor takes what is left.
    local n
    n=$(left)
    [ "$n" -lt "$1" ] || [ -n "$dry" ] || n=$1
    [ "$n" -gt 0 ] && echo "$n" || echo 1
}

# wanted KIND CASE SECONDS: not excluded by --case, not measured before, and there is time.
wanted() {
    local name=${2%%\"*}
    if [[ $1 != test && $1 != variability ]] && [ ${#cases[@]} -gt 0 ] && [[ " ${cases[*]} " != *" $name "* ]]; then return 1; fi
    if [ -n "$resume" ] && grep -q "\"kind\": \"$1\", \"case\": \"$2\"" "$file"; then return 1; fi
    [ "$(left)" -lt "$3" ] || return 0
    leave_out "$name" "no time left"
    return 1
}

failures=0
complain() {
    say "FAILED: $*"
    failures=$((failures + 1))
}
judge() { # CASE EXIT-CODE; 124: it had no time left
    [ "$2" -eq 0 ] || [ "$2" -eq 124 ] || complain "$1 (exit code $2)"
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
    124) leave_out "$name" "took longer than $most s" ;;
    *) record failed case "$name" policy '' why "exit code $code" ;;
    esac
    return "$code"
}

# ---- for all parts ----

tiny_model() {
    cat >"$work/tiny.json" <<'END'
{"vocab_size": 500, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 128,
 "max_position_embeddings": 128, "hidden_act": "gelu", "hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1}
END
    printf '2 1\n5 2\n9 3\n16 2\n' >"$work/tiny.tsv"
}

# few DRY REAL: the number to use.
few() { [ -n "$dry" ] && echo "$1" || echo "$2"; }

# ---- ranks: one process each, here ----

# find_gpus CASE FILE...: sets gpus, and what ranks need. False: this build lacks a file.
find_gpus() {
    local case=$1 file
    shift
    for file in "$@"; do
        [ -e "$build/$file" ] || { leave_out "$case" "no $file" && return 1; }
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
n=$1 ids=() worst=0
shift
trap 'kill "${ids[@]}" 2>/dev/null' EXIT
trap 'exit 143' TERM
for ((r = 0; r < n; r++)); do
    RANK=$r WORLD_SIZE=$n LOCAL_RANK=$r LOCAL_WORLD_SIZE=$n CAIRN_JOB_TOKEN=$$ "$@" &
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

# shellcheck source=bench/gpu/measure.sh
source "$cairn_root/bench/gpu/measure.sh"
# shellcheck source=bench/gpu/tests.sh
source "$cairn_root/bench/gpu/tests.sh"
# shellcheck source=bench/gpu/first.sh
source "$cairn_root/bench/gpu/first.sh"

part_report() {
    if ! command -v "$python" >/dev/null || ! "$python" -c '' 2>/dev/null; then
        say "$python cannot be run: no report"
        return 0
    fi
    # shellcheck disable=SC2086 # empty or a flag
    "$python" "$cairn_root/bench/gpu_report.py" $write --gpu "$gpu" "$results"
}

if [ -n "$pack" ]; then
    pack_kit "$pack"
    exit
fi
for part in "${parts[@]}"; do
    [ "$part" = report ] || begin_part "$part"
    "part_$part"
done
[ "$failures" -eq 0 ] || die 1 "$failures failed"
