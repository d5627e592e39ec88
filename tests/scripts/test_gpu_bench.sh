#!/usr/bin/env bash
# bench/gpu.sh, dry: all its parts through the host executor, what it writes, what it says where something is missing.
set -euo pipefail
# shellcheck source=tests/scripts/lib.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"

build=${CAIRN_TEST_BUILD_DIR:-$source_dir/build}
gpu=$source_dir/bench/gpu.sh
cmake --build "$build" --target help >targets 2>/dev/null
if ! grep -q '\bbackend_cuda_host\b' targets; then
    echo "skipped: this build has no host executor (no CUDA headers)" && exit 77
fi
wanted=(bench_step backend_cuda_host ops_{activate,linear,pack,attention_plain} cuda_host_{training,fused,offload}) tests=12 cudnn=''
if grep -q '\bfake_cudnn\b' targets; then
    wanted+=(fake_cudnn cuda_host_cudnn) tests=14 cudnn=1
fi
ranks=()
if grep -q '\bnccl_twin\b' targets && grep -q '\btransport_gloo\b' targets; then
    ranks=(bench_gpus transport_gloo transport_nccl nccl_twin)
fi
expect 0 cmake --build "$build" --target "${wanted[@]}" "${ranks[@]}"

# All parts but the peer's, which needs PyTorch; what it says without. Nothing is written but to --results and $OUT.
mkdir out lengths
printf '3 1\n9 2\n' >lengths/wikipedia-lengths.tsv
before=$(git -C "$source_dir" status --porcelain 2>/dev/null || true)
export OUT=$work/out
expect 0 "$gpu" --dry-run --build "$build" --lengths lengths --python false --minutes 60
says "op-pack                      passed" "ten-steps                    passed" "fp16-overflow                passed" \
    "offload                      passed" "bits-bf16                    passed" "bits-packed-fp32             passed" \
    "large-128-16gib: full fits" "false has no PyTorch and Transformers" "false cannot be run: no report"
[ "$before" = "$(git -C "$source_dir" status --porcelain 2>/dev/null || true)" ] || complain "the source tree changed"
for part in smoke tests variability ours peer; do has_file "out/gpu-dry-run-$part.jsonl"; done
mv out res
unset OUT
smoke=res/gpu-dry-run-smoke.jsonl
ours=res/gpu-dry-run-ours.jsonl
count() { grep -c -- "$1" "$2" || true; } # TEXT FILE
[ "$(count '"kind": "step", "case": "large-128"' "$ours")" -eq 2 ] || complain "not two policies of large-128"
[ "$(count '"kind": "step", "case": "large-128-policies"' "$ours")" -eq 4 ] || complain "not four further policies of large-128"
[ "$(count '"kind": "step", "case": "large-512"' "$smoke")" -eq 1 ] || complain "the first look has no step at 512"
[ "$(count '"kind": "test", "case": "op-pack"' "$smoke")" -eq 1 ] || complain "the first look tests no op"
[ "$(count '"kind": "step", "case": "large-128-native"' "$ours")" -eq 1 ] || complain "no step with native attention"
[ "$(count '"kind": "step", "case": "large-wiki"' "$ours")" -eq 2 ] || complain "not two policies of large-wiki"
[ "$(count '"kind": "step", "case": "base-mnli"' "$ours")" -eq 2 ] || complain "MNLI's own lengths were not found"
[ "$(count '"kind": "op", "case": "large-128"' "$ours")" -gt 30 ] || complain "few instrs of large-128"
grep -q '^linear,forward,128x64,1,' res/gpu-dry-run-large-128-kernels.csv || complain "no costs for cairn plan: $(cat res/*-kernels.csv)"
for length in 128 512 wiki; do
    [ "$(count "\"kind\": \"step\", \"case\": \"large-$length-attention-own\"" "$ours")" -eq 2 ] || complain "no own attention at $length"
    [ -z "$cudnn" ] || [ "$(count "\"kind\": \"step\", \"case\": \"large-$length-attention-cudnn\"" "$ours")" -eq 2 ] ||
        complain "no attention by cuDNN at $length"
done
[ "$(count '"kind": "idle"' "$ours")" -eq 1 ] || complain "nothing between instrs"
if [ ${#ranks[@]} -gt 0 ]; then # over NCCL's twin
    tests=$((tests + 2))
    [ "$(count '"kind": "all_reduce", "case": "ranks-2-' "$ours")" -eq 3 ] || complain "not three sums between two ranks"
    [ "$(count '"kind": "ranks", "case": "ranks-2", "ranks": 2' "$ours")" -eq 1 ] || complain "no step of two ranks"
fi
if [ -e "$build/cairn_gloo.so" ]; then
    tests=$((tests + 2))
    [ "$(count '"kind": "test", "case": "pipelines-zb-v", "verdict": "passed"' res/gpu-dry-run-tests.jsonl)" -eq 1 ] ||
        complain "no pipeline of two places"
fi
if ! grep -q '"kind": "left_out"' res/gpu-dry-run-variability.jsonl; then # it has shards, and Gloo
    [ "$(count '"kind": "variability"' res/gpu-dry-run-variability.jsonl)" -eq 2 ] || complain "not two runs of variability"
    grep -q '^gpu-dry-run-variability-second,1,.*,host executor 1,' res/gpu-dry-run-variability.csv || complain "$(cat res/*-variability.csv)"
fi
[ "$(count '"verdict": "passed"' res/gpu-dry-run-tests.jsonl)" -eq $tests ] || complain "not $tests tests"
[ "$(count 'no compute-sanitizer' res/gpu-dry-run-tests.jsonl)" -eq 4 ] || complain "sanitizers are not left out"
! grep -q '"same_bits": false' "$ours" || complain "a policy ends with other weights"
digests=$(grep '"case": "large-128"' "$ours" | grep -o '"digest": "[0-9a-f]*"' | sort -u | wc -l)
[ "$digests" -eq 1 ] || complain "policies end with $digests different weights"
grep -vE '^\{"kind": "[a-z_]+", .*\}$' res/*.jsonl && complain "lines that are no objects"

# A kit, and the first minutes with it: facts as they come, few files.
expect 0 cmake --build "$build" --target cairn backend_cpu
expect 0 "$gpu" --dry-run --pack kit --build "$build"
has_file kit/build/cairn_cuda_host.so kit/build/tests/ops_activate kit/mnli/cpu.jsonl
expect 0 "$gpu" --dry-run --part first --kit kit --results first --python false
says "opens" "mnli-bf16: losses differ from the CPU's in fp32 by at most"
for fact in 'right .* ok      op-pack' 'right .* ok      training' 'right .* ok      op-linear-fused' 'right .* ok      fused' 'right .*bits-base offload: .*same bits: true' 'right .*end of right' \
    'right .*mnli-fp32: losses differ from .* over 10 steps' 'fast .*large-512-native none: .*graphs captured' 'fast .*large-128-fused lean: .*same bits: true' 'fast .*end of fast'; do
    grep -q "^$fact" first/facts.txt || complain "no fact '$fact': $(cat first/facts.txt)"
done
[ "$(find first -type f | wc -l)" -le 8 ] || complain "more than 8 files: $(ls first)"
tar -tzf first/logs-right.tgz | grep -q training.log || complain "no logs of the first part"
sed -i 's/"loss": 1/"loss": 2/' kit/mnli/cpu.jsonl # another loss than the GPU's
expect 1 "$gpu" --dry-run --part right --kit kit --results first --python false
says "FAILED: mnli-fp32: losses differ by 1"
rm kit/build/tests/ops_pack
printf '#!/bin/sh\necho "skipped: words of the backend" && exit 77\n' >kit/build/tests/ops_pack
chmod +x kit/build/tests/ops_pack
expect 1 "$gpu" --dry-run --part right --kit kit --results first --python false
says "FAILED  op-pack, exit code 77: skipped: words of the backend"
# A part that is cut off keeps its logs and leaves no process behind.
printf '#!/bin/sh\necho words of the test\necho $$ >"$BEGUN"\nexec tail -f /dev/null\n' >kit/build/tests/ops_pack
BEGUN=$work/begun "$gpu" --dry-run --part right --kit kit --results cut --python false >cut.log 2>&1 &
id=$!
while [ ! -s begun ] && kill -0 "$id" 2>/dev/null; do nap 0.1; done
kill -TERM "$id"
wait "$id" && complain "a part that was cut off ends with 0"
gone() { ! kill -0 "$(cat begun)" 2>/dev/null; }
wait_until 300 gone || complain "a test of a part that was cut off lives on"
tar -xzOf cut/logs-right.tgz ./op-pack.log | grep -q "words of the test" || complain "the log of a test that was cut off is lost"

# Going on measures only what is missing, here the case whose lengths were not there before.
grep -v '"case": "large-wiki"' "$ours" >rest && mv rest "$ours"
lines=$(wc -l <"$ours")
expect 0 "$gpu" --dry-run --build "$build" --results res --part ours --resume --python false --minutes 60
[ "$(wc -l <"$ours")" -ge $((lines + 2)) ] || complain "nothing was added"
[ "$(count '"kind": "step", "case": "large-128"' "$ours")" -eq 2 ] || complain "large-128 was measured again"

# The report: tables from what is there, of one case the later line.
if python3 -c '' 2>/dev/null; then
    expect 0 python3 "$source_dir/bench/gpu_report.py" --gpu dry-run res
    says "## GPU: dry-run" "| G11 | large-128 | equal bits | equal over policies and rounds |" "Tests on the device: $tests of $tests passed" \
        '| G10 | large-128, `none`, the process | within 3 %, never over | 2 MiB, planned 2 (+0.00 %)' \
        "| G11 | large-128, products' sums in a fixed order against any |" "| G13 | large-128, GELU_BWD, 128 columns |" \
        "MLM_XENT, 64 columns (without its products)" \
        "say nothing of any GPU"
fi

# No time: everything is left out, and said so.
expect 0 "$gpu" --dry-run --build "$build" --results none --part ours --minutes 0 --python false
says "large-128: left out, no time left"
[ "$(count '"kind": "step"' none/gpu-dry-run-ours.jsonl)" -eq 0 ] || complain "measured without time"

# A policy that fails loses nothing of the others.
tiny_model() { sed -n "/^tiny_model/,/^}/p" "$gpu" | sed -n '/^{/,/^ .*}$/p'; }
tiny_model >tiny.json
expect 1 env CAIRN_BACKEND_DIR="$build" "$build/bench_step" --backend ref --product 8 --json failing.jsonl tiny.json 2 16 1 fp32 none nosuch full
says "bench_step: nosuch: "
[ "$(count '"kind": "step"' failing.jsonl) $(count '"kind": "failed", "case": "", "policy": "nosuch"' failing.jsonl)" = "2 1" ] ||
    complain "a failing policy: $(cat failing.jsonl)"

# As on a GPU, with stand-ins for nvidia-smi, bench_step and Python: what crashes or fails loses no line before it, and
# stops nothing after it; a GPU that hides its memory has no figure of it. Libraries are where every program finds them.
mkdir bin stand
cat >bin/nvidia-smi <<'END'
#!/bin/sh
[ -z "$BROKEN" ] || { echo "Failed to initialize NVML: words of the driver" && exit 18; }
case $* in
*memory.used*) echo '[Insufficient Permissions]' ;;
*) echo "NVIDIA H100 80GB HBM3" && echo "NVIDIA H100 80GB HBM3" ;;
esac
END
cat >stand/bench_step <<'END'
#!/bin/sh
while [ $# -gt 0 ]; do
    [ "$1" != --name ] || name=$2
    [ "$1" != --json ] || json=$2
    shift
done
echo "{\"kind\": \"step\", \"case\": \"$name\", \"policy\": \"none\"}" >>"$json"
[ "$name" != large-128 ] || kill -SEGV $$
END
printf '#!/bin/sh\nfor name in cublasLt.so.13 cudnn.so.9 nccl.so.2; do echo "lib$name (libc6,x86-64) => /usr/lib/lib$name"; done\n' >bin/ldconfig
printf '#!/bin/sh\n[ "$1" = -c ]\n' >bin/python # imports what it is told to, and can measure nothing
cp stand/bench_step stand/cairn
touch stand/cairn_cuda.so
chmod +x bin/* stand/bench_step stand/cairn
expect 1 env -u LD_LIBRARY_PATH -u CPATH PATH="$work/bin:$PATH" "$gpu" --build stand --results stood --part ours --part peer --part report \
    --case large-128 --case large-512 --python "$work/bin/python"
says "library /usr/lib/libnccl.so.2" "large-128 (exit code 139)" "FAILED: large-512, plain" "FAILED: large-128, compile"
stood=stood/gpu-nvidia-h100-80gb-hbm3-ours.jsonl
[ "$(sed -n 's/.*"kind": "\([a-z]*\)", "case": "\([a-z0-9-]*\)".*/\1 \2/p' "$stood" | tr '\n' ,)" = "step large-128,failed large-128,step large-512," ] ||
    complain "a crash: $(cat "$stood")"
expect 2 env BROKEN=1 PATH="$work/bin:$PATH" "$gpu" --build stand --results stood --part ours
says "nvidia-smi finds no GPU: Failed to initialize NVML: words of the driver"

# Products chosen in an earlier call are taken; a folder without them is refused.
expect 2 "$gpu" --dry-run --build "$build" --products "$work/lengths" --part ours
says "no products-*.txt there"

# Wrong use.
expect 2 "$gpu" --dry-run --part theirs
says "expected first, right, fast, smoke, ours, peer, tests, variability or report"
expect 2 "$gpu" --quick
says "unknown flag '--quick'"
expect 2 "$gpu" --dry-run --build "$work/none" --part ours
says "has no cairn"
if ! command -v nvidia-smi >/dev/null; then
    expect 2 "$gpu" --part ours --build "$build"
    says "there is no nvidia-smi here" "--dry-run"
fi
finish
