#!/usr/bin/env bash
# The machine code for Hopper (sm_90a), as far as a GPU is not needed to judge it: sums that depend on chance (atomic
# additions of floating-point numbers), spills of bf16 kernels, accesses to registers of products that run, and
# instructions and cycles of shared memory of the kernels that take most of a step (sass.tsv). First that the checks find
# what they look for.
set -euo pipefail
build=${CAIRN_TEST_BUILD_DIR:-build} here=$(dirname "$0")
PATH=$PATH:/usr/local/cuda/bin
# cuobjdump is the toolkit's, or of the Python packages nvidia-cuda-cuobjdump and nvidia-cuda-nvdisasm.
for folder in $(python3 -c 'import sys; print("\n".join(sys.path[1:]))' 2>/dev/null || true); do
    for bin in "$folder"/nvidia/*/bin; do [ ! -x "$bin/cuobjdump" ] || PATH=$PATH:$bin; done
done

atomics() { grep -E '^[[:space:]]*/\*[0-9a-f]+\*/.*[[:space:]](ATOM|ATOMG|ATOMS|RED)\.[A-Z0-9.]*(F16|BF16|F32|F64)' || true; }

# Kernels of bf16 with loads from or stores to local memory.
spills() {
    awk '/Function : / { kernel = $3 } kernel ~ /bfloat16/ && /[ \t](STL|LDL)[. ]/ { count[kernel]++ }
         END { for (kernel in count) printf "%s: %d loads and stores of local memory\n", kernel, count[kernel] }'
}

# Instructions that touch registers of a warpgroup's product (HGMMA) that runs: before the next wait, as the code lies.
touching() {
    awk '
        /Function : / { kernel = $3; split("", busy) }
        !/^[ \t]*\/\*[0-9a-f]+\*\/[ \t]/ { next }
        /WARPGROUP\.DEPBAR/ { split("", busy) }
        {
            product = match($0, /HGMMA\.64x[0-9]+/)
            accumulators = substr($0, RSTART + 9, RLENGTH - 9) / 2 # of 64xN in fp32
            n = 0
            for (rest = $0; match(rest, /[^UA-Z]R[0-9]+/); rest = substr(rest, RSTART + RLENGTH)) {
                first = substr(rest, RSTART + 2, RLENGTH - 2) + 0
                many = product ? (++n == 1 ? accumulators : first == d ? 0 : 4) : substr(rest, RSTART + RLENGTH) ~ /^\.64/ ? 2 : 1
                if (n == 1) d = first
                for (i = first; i < first + many; i++)
                    if (product) busy[i] = 1
                    else if (i in busy) { printf "%s: R%d is touched before the wait: %s\n", kernel, i, $0; break }
            }
        }'
}

counts() { awk -f "$here/sass.awk" "$1" -; }

sample='		Function : _Z16attention_kernelI13__nv_bfloat16Li64EE
        /*0000*/                   MOV R1, c[0x0][0x28] ;
        /*0010*/                   LDG.E.128 R12, desc[UR14][R2.64] ;
        /*0020*/              @!P0 LDGSTS.E.BYPASS.128 [R95], desc[UR14][R88.64], !P0 ;
        /*0030*/              @!P0 BRA 0x20 ;
        /*0040*/                   HMMA.16816.F32.BF16 R4, R8, R12, R4 ;
        /*0044*/              @!P2 BRA 0x50 ;
        /*0048*/                   FSEL R4, R4, -INF , !P4 ;
        /*0050*/               @P1 BRA 0x10 ;
        /*0060*/                   STL [R1], R2 ;
        /*0070*/                   RED.E.ADD.F32.FTZ.RN.STRONG.GPU desc[UR4][R2.64], R5 ;
        /*0080*/                   ATOMG.E.ADD.STRONG.GPU PT, R0, desc[UR4][R2.64], R5 ;
        /*0090*/               @P3 BRA 0xb0 ;
        /*00a0*/                   LDG.E.U16 R2, desc[UR6][R2.64] ;
        /*00b0*/                   EXIT ;
        /*00c0*/                   RET.REL.NODEC R24 0x0 ;'
product='		Function : products
        /*0000*/                   HGMMA.64x64x16.F32.BF16 R56, R24, gdesc[UR8].tnspB, R56, gsb0 ;
        /*0010*/                   FADD R28, R55, R88 ;
        /*0020*/                   IADD3 R28, R26, UR56, RZ ;
        /*0030*/                   STG.E.64 desc[UR4][R86.64], R2 ;
        /*0040*/                   WARPGROUP.DEPBAR.LE gsb0, 0x0 ;
        /*0050*/                   FADD R28, R56, R87 ;
        /*0060*/                   HGMMA.64x32x16.F32.BF16 R40, gdesc[UR20], RZ, !UPT ;
        /*0070*/                   FADD R28, R56, R55 ;'
# The copies in the sample's loop run four times; a stage leaves the selection out. No way takes the access of 16 bits,
# nor what follows EXIT.
table='attention_kernel stage
attention_kernel loop
attention_kernel all'
expected='attention_kernel 12 16
attention_kernel 7 4
attention_kernel 13 4'
found=$(counts <(echo "$table") <<<"$sample")
[ "$found" = "$expected" ] || { printf 'the sample has the counts\n%s\nexpected\n%s\n' "$found" "$expected" && exit 1; }
[ "$(spills <<<"$sample" | wc -l) $(atomics <<<"$sample" | wc -l) $(touching <<<"$product" | wc -l)" = "1 1 3" ] || { echo "the checks find too little, or too much" && exit 1; }

command -v cuobjdump >/dev/null || { echo "skipped: there is no cuobjdump" && exit 77; }
shopt -s nullglob
objects=("$build"/kernels/cuda/*.o)
[ ${#objects[@]} -gt 0 ] || { echo "skipped: the cuda backend was not built in $build" && exit 77; }
work=$(mktemp -d)
trap 'rm -rf -- "$work"' EXIT

failed=0 kernels=0
bad() { echo "$*" && failed=1; }
compiler=$(nvcc --version | grep -o 'release [0-9.]*') || compiler=none
judge() { # ARCHITECTURE TABLE OBJECT...
    local architecture=$1 table=$2 found n object kernel way most most_shared unit count shared
    for object in "${@:3}"; do cuobjdump -sass -arch "$architecture" "$object" 2>/dev/null || true; done >"$work/sass"
    grep -q "arch = $architecture\$" "$work/sass" || { echo "$architecture: no kernel was built for it" && return 0; }
    n=$(grep -c 'Function : ' "$work/sass")
    kernels=$((kernels + n))
    found=$(atomics <"$work/sass")
    [ -z "$found" ] || bad "$architecture: atomic additions, whose order is chance: $found"
    found=$(spills <"$work/sass")
    [ -z "$found" ] || bad "$architecture: $found"
    found=$(touching <"$work/sass")
    [ -z "$found" ] || bad "$architecture: $found"
    # Units and ways: sass.awk. Both counts of a unit must not be above the recorded ones.
    counts "$table" <"$work/sass" >"$work/counts"
    while IFS=$'\t' read -r kernel way most most_shared unit; do
        case $kernel in '' | '#'* | kernel) continue ;; esac
        read -r count shared < <(awk -v kernel="$kernel" '$1 == kernel { print $2, $3 }' "$work/counts") || true
        echo "$kernel, $unit ($way): ${count:=0} instructions, recorded $most; ${shared:=0} cycles of shared memory, recorded $most_shared"
        [ "$count" -gt 0 ] || bad "$kernel: not found, or its loop is not"
        [ "$compiler" = "release 13.0" ] || continue # the tables' compiler
        [ "$count" -le "$most" ] || bad "$kernel: $count instructions, more than $most"
        [ "$shared" -le "$most_shared" ] || bad "$kernel: $shared cycles of shared memory, more than $most_shared"
    done <"$table"
}
judge sm_90a "$here/sass.tsv" "${objects[@]}"
[ "$kernels" -gt 0 ] || { echo "skipped: no kernel was built for sm_90a" && exit 77; }
[ "$failed" -eq 0 ] && echo "$kernels kernels: no floating-point atomics, no spills in bf16, products undisturbed"
exit "$failed"
