# Reads a table of kernels (sass.tsv), then machine code (cuobjdump -sass). Prints for each row of the table that has a
# kernel: its pattern, the instructions of one unit of a warp's work, and the cycles in which a multiprocessor's shared
# memory serves them.
#
# The column `way` says what a unit is:
#   stage  attention's main loop: the smallest loop with products and copies, as it runs in a whole stage: of all ways
#          through it those with the most products, copies, exponentials and draws, and of these the shortest. Inner
#          loops with products or copies run four times (a stage has four tiles, a thread copies four rows), other
#          inner loops never (unaligned copies).
#   products  the same of the smallest loop with products, copies or none.
#   loop   the longest way through the smallest loop with the most 16-byte accesses to global memory.
#   all    the longest way through the kernel.
# A longest way takes every loop once, no call, no divergent branch, and no 16-bit access to global memory (those are
# for unaligned operands).
#
# Shared memory serves 128 bytes a cycle: of a warp's four matrices or 16 bytes a lane 4 cycles, of 8 bytes 2, else 1. A
# warpgroup's product (HGMMA 64xNx16) reads N·32 bytes of its second operand, and 2 KiB of its first if that is in shared
# memory, too: 4 cycles of 2 KiB for one of four warps.
function cycles(op)
{
    if (op ~ /^HGMMA/) return (op ~ /both/ ? 4 : 0) + (op ~ /64x32/ ? 2 : 4)
    if (op !~ /^(LDS|STS|LDSM|STSM|LDGSTS|SHFL)/) return 0
    return op ~ /128|88\.4/ ? 4 : op ~ /64|88\.2/ ? 2 : 1
}

function loop_of_stage(with_copies,   l, main) {
    for (l = 1; l <= loops; l++) {
        products[l] = mma[last[l]] - mma[first[l] - 1]
        copies[l] = copied[last[l]] - copied[first[l] - 1]
        if (products[l] && (copies[l] || !with_copies) && (!main || last[l] - first[l] < last[main] - first[main])) main = l
    }
    return main
}

# Work of which a whole stage does all: products, copies, exponentials, draws.
function is_work(op) { return op ~ /^(HG?MMA|LDGSTS|MUFU|IMAD\.WIDE\.U32)/ }

# The way with the most work, and of these the shortest.
function reach_stage(i, from) {
    if (i > last[main_loop] || (i in way && (work[i] > work[from] || work[i] == work[from] && way[i] <= way[from]))) return
    work[i] = work[from]
    way[i] = way[from]
    served[i] = served[from]
}

function count_stage(with_copies,   i, l, to, weight) {
    main_loop = loop_of_stage(with_copies)
    if (!main_loop) return
    to = last[main_loop]
    split("", way)
    i = first[main_loop]
    way[i] = work[i] = served[i] = 0
    for (; i <= to; i++) {
        if (!(i in way)) continue
        weight = 1
        for (l = 1; l <= loops; l++)
            if (l != main_loop && first[l] >= first[main_loop] && last[l] <= to && i >= first[l] && i <= last[l])
                weight *= products[l] || copies[l] ? 4 : 0
        way[i] += weight
        served[i] += weight * cycles(op[i])
        work[i] += is_work(op[i])
        if (i in target && op[i] !~ /DIV/ && target[i] in at && at[target[i]] > i) reach_stage(at[target[i]], i)
        if (i < to && (guarded[i] || op[i] ~ /DIV/ || op[i] !~ /^(EXIT|BRA|RET)/)) reach_stage(i + 1, i)
    }
    if (to in way) {
        instructions = way[to]
        shared = served[to]
    }
}

function reach(i, from) {
    if (i in way && way[i] > way[from]) return
    way[i] = way[from] + 1
    served[i] = served[from] + cycles(op[i])
}

function count_way(from, to,   i) {
    split("", way)
    way[from] = 1
    served[from] = cycles(op[from])
    for (i = from; i <= to; i++) {
        if (!(i in way) || op[i] ~ /^(LDG|STG).*[US]16|^CALL/) continue
        if ((i == to || op[i] == "EXIT") && way[i] > instructions) {
            instructions = way[i]
            shared = served[i]
        }
        if (i in target && op[i] !~ /DIV/ && target[i] in at && at[target[i]] > i) reach(at[target[i]], i)
        if (guarded[i] || op[i] ~ /DIV/ || op[i] !~ /^(EXIT|BRA|RET)/) reach(i + 1, i)
    }
}

function count_loop(   l, wide, most, main) {
    for (l = 1; l <= loops; l++) {
        wide = accesses[last[l]] - accesses[first[l] - 1]
        if (wide > most || wide == most && main && last[l] - first[l] < last[main] - first[main]) {
            most = wide
            main = l
        }
    }
    if (main) count_way(first[main], last[main])
}

function finish(   r, l) {
    for (r = 1; r <= rows; r++) {
        if (kernel !~ pattern[r]) continue
        loops = 0
        for (l = 1; l <= n; l++)
            if (l in target && op[l] !~ /DIV/ && target[l] in at && at[target[l]] < l) {
                first[++loops] = at[target[l]]
                last[loops] = l
            }
        instructions = shared = 0
        if (kind[r] == "stage" || kind[r] == "products") count_stage(kind[r] == "stage")
        if (kind[r] == "loop") count_loop()
        if (kind[r] == "all") count_way(1, n)
        print pattern[r], instructions, shared
    }
    n = 0
    split("", at)
    split("", target)
}

FNR == NR {
    if ($1 == "" || $1 ~ /^#/ || $1 == "kernel") next
    pattern[++rows] = $1
    kind[rows] = $2
    next
}
/Function : / { finish(); kernel = $3 }
/^[ \t]*\/\*[0-9a-f]+\*\/[ \t]/ {
    address = substr($1, 3, length($1) - 4)
    sub(/^0+/, "", address)
    at[address] = ++n
    guarded[n] = $2 ~ /^@/ || ($2 == "BRA.U" && $3 ~ /^!?UP/)
    op[n] = $2 ~ /^@/ ? $3 : $2
    sub(/;$/, "", op[n])
    if ($2 == "@!PT") op[n] = "NEVER" # an instruction that waits for others, and does nothing
    if ($0 ~ /HGMMA[^ ]* R[0-9]+, gdesc/) op[n] = op[n] ".both"
    mma[n] = mma[n - 1] + (op[n] ~ /HG?MMA/)
    copied[n] = copied[n - 1] + (op[n] ~ /^LDGSTS/)
    accesses[n] = accesses[n - 1] + (op[n] ~ /^(LDG|STG).*128/)
    if (op[n] ~ /^BRA/ && match($0, /0x[0-9a-f]+ ;/)) target[n] = substr($0, RSTART + 2, RLENGTH - 4)
}
END { finish() }
