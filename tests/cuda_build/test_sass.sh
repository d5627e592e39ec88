#!/usr/bin/env bash
# The machine code for Hopper, as far as a GPU is not needed to judge it: sums that depend on chance (atomic additions of
# floating-point numbers), spills of bf16 kernels, and the instructions of attention's main loops. First that the checks
# find what they look for.
set -euo pipefail
build=${CAIRN_TEST_BUILD_DIR:-build} architecture=sm_90a
PATH=$PATH:/usr/local/cuda/bin

# What nvcc 13.0 made of a stage of 64 keys or queries in bf16, heads of 64, dropout on: the main loop, its copies of
# whole stages and its tiles four times each, unaligned copies left out.
recorded='attention_kernel 1015
attention_dq_kernel 1115
attention_dkv_kernel 1238'

atomics() { grep -E '^[[:space:]]*/\*[0-9a-f]+\*/.*[[:space:]](ATOM|ATOMG|ATOMS|RED)\.[A-Z0-9.]*(F16|BF16|F32|F64)' || true; }

# Kernels of bf16 with loads from or stores to local memory.
spills() {
    awk '/Function : / { kernel = $3 } kernel ~ /bfloat16/ && /[ \t](STL|LDL)[. ]/ { count[kernel]++ }
         END { for (kernel in count) printf "%s: %d loads and stores of local memory\n", kernel, count[kernel] }'
}

# Instructions of a stage, for each attention kernel of bf16 with heads of 64.
stages() {
    awk '
        function finish(   i, l, m, main, weight, sum) {
            if (kernel ~ /bfloat16Li64/) {
                for (l = 1; l <= loops; l++) {
                    products[l] = mma[last[l]] - mma[first[l] - 1]
                    copies[l] = copied[last[l]] - copied[first[l] - 1]
                    if (products[l] && copies[l] && (!main || last[l] - first[l] < last[main] - first[main])) main = l
                }
                for (i = first[main]; main && i <= last[main]; i++) {
                    weight = 1
                    for (m = 1; m <= loops; m++)
                        if (m != main && first[m] >= first[main] && last[m] <= last[main] && i >= first[m] && i <= last[m])
                            weight *= products[m] || copies[m] ? 4 : 0
                    sum += weight
                }
                sub(/^_Z[0-9]+/, "", kernel)
                sub(/I13__nv_bfloat16.*/, "", kernel)
                print kernel, sum + 0
            }
            n = loops = 0
            split("", at)
        }
        /Function : / { finish(); kernel = $3 }
        /^[ \t]*\/\*[0-9a-f]+\*\/[ \t]/ {
            address = substr($1, 3, length($1) - 4)
            sub(/^0+/, "", address)
            at[address] = ++n
            mma[n] = mma[n - 1] + ($0 ~ /HMMA/)
            copied[n] = copied[n - 1] + ($0 ~ /LDGSTS/)
            if ($0 ~ /BRA/ && match($0, /0x[0-9a-f]+ ;/)) {
                target = substr($0, RSTART + 2, RLENGTH - 4)
                if (target in at) { first[++loops] = at[target]; last[loops] = n }
            }
        }
        END { finish() }'
}

sample='		Function : _Z16attention_kernelI13__nv_bfloat16Li64EE
        /*0000*/                   MOV R1, c[0x0][0x28] ;
        /*0010*/                   IADD3 R1, R1, 0x1, RZ ;
        /*0020*/              @!P0 LDGSTS.E.BYPASS.128 [R95], desc[UR14][R88.64], !P0 ;
        /*0030*/              @!P0 BRA 0x20 ;
        /*0040*/                   HMMA.16816.F32.BF16 R4, R8, R12, R4 ;
        /*0050*/               @P1 BRA 0x10 ;
        /*0060*/                   STL [R1], R2 ;
        /*0070*/                   RED.E.ADD.F32.FTZ.RN.STRONG.GPU desc[UR4][R2.64], R5 ;
        /*0080*/                   ATOMG.E.ADD.STRONG.GPU PT, R0, desc[UR4][R2.64], R5 ;'
[ "$(stages <<<"$sample")" = "attention_kernel 11" ] || { echo "a stage of the sample has $(stages <<<"$sample")" && exit 1; }
[ "$(spills <<<"$sample" | wc -l) $(atomics <<<"$sample" | wc -l)" = "1 1" ] || { echo "the checks find too little, or too much" && exit 1; }

command -v cuobjdump >/dev/null || { echo "skipped: there is no cuobjdump" && exit 77; }
shopt -s nullglob
objects=("$build"/kernels/cuda/*.o)
[ ${#objects[@]} -gt 0 ] || { echo "skipped: the cuda backend was not built in $build" && exit 77; }
work=$(mktemp -d)
trap 'rm -rf -- "$work"' EXIT
for object in "${objects[@]}"; do cuobjdump -sass -arch "$architecture" "$object" >>"$work/sass" 2>/dev/null || true; done
kernels=$(grep -c 'Function : ' "$work/sass") || { echo "skipped: no kernel was built for $architecture" && exit 77; }

failed=0
bad() { echo "$*" && failed=1; }
found=$(atomics <"$work/sass")
[ -z "$found" ] || bad "atomic additions, whose order is chance: $found"
found=$(spills <"$work/sass")
[ -z "$found" ] || bad "$found"
stages <"$work/sass" >"$work/stages"
while read -r kernel most; do
    count=$(awk -v kernel="$kernel" '$1 == kernel { print $2 }' "$work/stages")
    echo "$kernel: ${count:=0} instructions a stage, recorded $most"
    [ "$count" -gt 0 ] || bad "$kernel: no main loop was found"
    ! nvcc --version | grep -q 'release 13\.0' || [ "$count" -le "$most" ] || bad "$kernel: $count instructions a stage, more than $most"
done <<<"$recorded"
[ "$failed" -eq 0 ] && echo "$kernels kernels: no floating-point atomics, no spills in bf16"
exit "$failed"
