#!/usr/bin/env bash
# ptxas' reports: no kernel spills registers to memory, except those allowed here. First the check itself is tested.
set -euo pipefail
build=${CAIRN_TEST_BUILD_DIR:-build}

# Allowed spills: kernel|architecture|bytes, the first two as regular expressions.
# fp32 attention keeps twice the bytes in registers and is not meant for speed; the tiles fit the registers of Hopper, and
# on Turing and Ampere a few are missing. The widest rows of the row kernels still need more registers than there are, ADDNORM's
# backward most of all.
allowed='attention_[a-z]*_*kernelIf|sm_|64
attention_|sm_75|64
attention_|sm_80|64
addnorm_bwd_kernel.*RowShape|sm_|1024
embed_(bwd_)?kernel.*RowShape|sm_|64'

# Kernel, architecture and bytes of spills, for those that have more than they may.
spills() {
    allowed=$allowed awk '
        BEGIN {
            n = split(ENVIRON["allowed"], line, "\n")
            for (i = 1; i <= n; i++) { split(line[i], part, "|"); who[i] = part[1]; where[i] = part[2]; may[i] = part[3] + 0 }
        }
        /Compiling entry function/ { split($0, word, "\047"); kernel = word[2]; architecture = word[4] }
        /bytes spill stores/ {
            bytes = most = 0
            for (i = 2; i <= NF; i++) if ($i == "bytes" && $(i + 1) == "spill") bytes += $(i - 1)
            for (i = 1; i <= n; i++)
                if (kernel ~ who[i] && architecture ~ where[i] && may[i] > most) most = may[i]
            if (bytes > most) printf "%s on %s: %d bytes of spills, at most %d\n", kernel, architecture, bytes, most
        }'
}

sample="ptxas info    : Compiling entry function '_Z6kernelv' for 'sm_90a'
ptxas info    : Function properties for _Z6kernelv
    8 bytes stack frame, 8 bytes spill stores, 4 bytes spill loads"
[ "$(spills <<<"$sample")" = "_Z6kernelv on sm_90a: 12 bytes of spills, at most 0" ] || { echo "the check finds no spills" && exit 1; }
[ -z "$(spills <<<"${sample//[84] bytes spill/0 bytes spill}")" ] || { echo "the check finds spills where there are none" && exit 1; }

shopt -s nullglob
logs=("$build"/kernels/cuda/*.ptxas)
[ ${#logs[@]} -gt 0 ] || { echo "skipped: the cuda backend was not built in $build" && exit 77; }
kernels=$(cat "${logs[@]}" | grep -c 'Compiling entry function') || true
[ "$kernels" -gt 0 ] || { echo "no kernel in the logs of ptxas in $build/kernels/cuda" && exit 1; }
found=$(cat "${logs[@]}" | spills)
[ -z "$found" ] || { printf '%s\n' "$found" && exit 1; }
echo "$kernels kernels (each per architecture): no spills but those allowed"
