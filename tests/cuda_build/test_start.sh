#!/usr/bin/env bash
# The program starts without CUDA. --backend cuda names the missing part; --backend auto does not mention it.
set -euo pipefail
cairn=${CAIRN_BINARY:?set CAIRN_BINARY to the program}
build=${CAIRN_TEST_BUILD_DIR:?set CAIRN_TEST_BUILD_DIR to its build folder}
work=$(mktemp -d)
trap 'rm -rf -- "$work"' EXIT
unset CAIRN_BACKEND CAIRN_BACKEND_DIR

bad() { echo "$*" && exit 1; }

for file in "$cairn" "$build/cairn_cuda.so"; do
    [ -e "$file" ] || bad "$file was not built"
    if ldd "$file" | grep -iE 'cuda\.so|cudart|cublas|nvidia' | grep -v 'cairn_cuda'; then bad "$file needs a CUDA library"; fi
done
ldd "$build/cairn_cuda.so" | grep -q 'not found' && bad "cairn_cuda.so needs a library that is not installed"

cat >"$work/config.json" <<'END'
{"model_type": "bert", "vocab_size": 100, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2,
 "intermediate_size": 64, "max_position_embeddings": 64, "type_vocab_size": 2, "hidden_act": "gelu",
 "layer_norm_eps": 1e-12, "hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1, "initializer_range": 0.02}
END
# plan BACKEND: opens it and plans; messages go to $work/said.
plan() {
    XDG_CACHE_HOME=$work CUDA_VISIBLE_DEVICES='' "$cairn" plan --task MNLI --model-config "$work/config.json" \
        --max-seq-length 32 --batch-size 4 --backend "$1" >"$work/out" 2>"$work/said"
}

# Without a driver, or with one that shows no GPU.
status=0
plan cuda || status=$?
[ "$status" -eq 2 ] || { cat "$work/said" && bad "--backend cuda without a GPU ends with $status, not 2"; }
grep -qE "error: .*backend 'cuda': (this machine has no NVIDIA driver|no GPU is visible|the NVIDIA driver is too old)" "$work/said" ||
    { cat "$work/said" && bad "--backend cuda without a GPU does not say so"; }
grep -q -- '--backend cpu' "$work/said" || bad "the message does not say what to do"

plan auto || { cat "$work/said" && bad "--backend auto fails where there is no GPU"; }
if grep -iE 'cuda|nvidia|gpu' "$work/said"; then bad "--backend auto mentions GPUs where there is none"; fi

# cuBLASLt is loaded after the GPU is found.
! grep -q cublas "$work/said" || bad "cuBLASLt was looked for without a GPU"

# A test of the backend is skipped here, with the reason, and fails beside a GPU.
tests() { env "$@" CAIRN_BACKEND_DIR="$build" CAIRN_TEST_BACKENDS=cuda CAIRN_TEST_MAY_SKIP=1 "$build/tests/ops_activate" >"$work/said" 2>&1; }
for gpu in none "$work" hidden; do
    status=0 wanted=77 flags=(-u CUDA_VISIBLE_DEVICES CAIRN_TEST_GPUS="$gpu")
    [ "$gpu" != "$work" ] || wanted=1
    [ "$gpu" != hidden ] || flags=(CUDA_VISIBLE_DEVICES= CAIRN_TEST_GPUS="$work")
    tests "${flags[@]}" || status=$?
    [ "$status" -eq "$wanted" ] || { cat "$work/said" && bad "a test beside the GPU '$gpu' ends with $status, not $wanted"; }
    grep -q "backend 'cuda': " "$work/said" || { cat "$work/said" && bad "a test beside the GPU '$gpu' has no reason"; }
done
