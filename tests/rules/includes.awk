# Checks who includes whom, as docs/design.md, "The rooms", says. Input: lines "file:line:text" of #include directives.
# Prints each that is not allowed.

BEGIN {
    FS = ":"
    # room: which headers of other rooms it may include; a folder with a slash at its end stands for all of its own.
    # Everyone may include base/ and his own folder.
    allow["src/base"] = ""
    allow["src/config"] = ""
    allow["src/text"] = "config/"
    allow["src/data"] = "text/ config/"
    allow["src/plan"] = "kernels/op.h"
    allow["src/model"] = "plan/plan.h config/"
    allow["src/optim"] = "plan/plan.h model/"
    allow["src/comm"] = ""
    allow["src/launch"] = "config/ comm/"
    allow["src/exec"] = "plan/ comm/ kernels/backend.h"
    allow["src/formats"] = ""
    allow["src/state"] = "formats/ model/ comm/ text/"
    allow["src/report"] = ""
    allow["src/train"] = "config/ text/ data/ plan/ model/ optim/ comm/ exec/ state/ formats/ report/ kernels/op.h kernels/backend.h kernels/device.h"
    allow["src/commands"] = allow["src/train"] " train/ tasks/ launch/"
    allow["src"] = "config/ commands/ train/signals.h" # main.c
    allow["tasks"] = allow["src/train"] " train/"
    allow["kernels"] = "kernels/op.h kernels/op_list.h kernels/backend.h kernels/device.h kernels/dropout.h kernels/kfac.h kernels/loss_scale.h kernels/word_mix.h kernels/host.h"

    # Headers of others, and the files or folders that alone may include them.
    vendor["dnnl"] = "kernels/cpu/onednn"
    vendor["oneapi"] = "kernels/cpu/onednn"
    vendor["omp"] = "kernels/cpu/"
    vendor["xxh"] = "src/base/digest.c"
    vendor["hdf5"] = "src/data/hdf5"
    vendor["expat"] = "tasks/pretrain/wiki/with_expat/"
    vendor["zlib"] = "src/data/gz_zlib"
    vendor["gloo"] = "src/comm/gloo"
    vendor["nccl"] = "src/comm/nccl tests/cuda_host/nccl_twin"
    vendor["cuda"] = "kernels/cuda/ tests/cuda_host/ bench/bench_products"
    vendor["nvtx3"] = "kernels/cuda/nvtx tests/"
    vendor["cublas"] = "kernels/cuda/ tests/cuda_host/ bench/bench_products"
    vendor["cudnn"] = "kernels/cuda/ tests/cuda_host/"
    vendor["cmocka"] = "tests/"
    vendor["immintrin"] = "kernels/cpu/ tests/"

    # plan/ is pure C11.
    split("assert ctype errno float inttypes limits math stdarg stdatomic stdbool stddef stdint stdio stdlib string", c11, " ")
    for (i in c11) standard[c11[i] ".h"] = 1
}

function refuse(why) { printf "%s:%s: %s %s\n", file, line, header, why }

function room_of(path) {
    if (path ~ /^src\/[^\/]+$/) return "src"
    if (path ~ /^src\//) return substr(path, 1, index(substr(path, 5), "/") + 3)
    return substr(path, 1, index(path, "/") - 1)
}

# The folder that a header written as in the sources lies in: "plan/plan.h" is in src/plan.
function own(room, path) {
    if (room == "tasks") { # tasks do not know each other
        return path ~ /^tasks\/[^\/]+\// && index(header, substr(path, 1, index(substr(path, 7), "/") + 6)) == 1
    }
    if (room == "kernels") { # a backend knows its own folder
        return path ~ /^kernels\/[^\/]+\// && index(header, substr(path, 1, index(substr(path, 9), "/") + 8)) == 1
    }
    return index(header, substr(room, 5) "/") == 1
}

function check_ours(room,    n, i, parts) {
    if (header !~ /\//) return refuse("is not written with its folder (\"base/base.h\")")
    if (index(header, "base/") == 1 || own(room, file)) return
    if (header ~ /_internal\.h$/) return refuse("is internal to its folder")
    n = split(allow[room], parts, " ")
    for (i = 1; i <= n; i++) {
        if (header == parts[i]) return
        if (parts[i] ~ /\/$/ && index(header, parts[i]) == 1) return
    }
    refuse("may not be included by " room "/")
}

function check_others(room,    name, n, i, parts, good) {
    for (name in vendor) {
        if (index(header, name) != 1) continue
        n = split(vendor[name], parts, " ")
        good = 0
        for (i = 1; i <= n; i++) good += index(file, parts[i]) == 1
        if (!good) refuse("may be included by " vendor[name] " only")
    }
    if (room == "src/plan" && !(header in standard)) refuse("is not C11's; plan/ is pure C11")
}

{
    file = $1
    line = $2
    text = substr($0, length(file) + length(line) + 3)
    if (!match(text, /["<][^">]*[">]/)) next
    quoted = substr(text, RSTART, 1) == "\""
    header = substr(text, RSTART + 1, RLENGTH - 2)
    room = room_of(file)
    if (room == "tests" || room == "bench") { # they may look everywhere, but not at the libraries behind
        if (!quoted) check_others(room)
    } else if (quoted) {
        if (!(room in allow)) refuse("stands in " room "/, of which tests/rules/includes.awk knows nothing")
        else check_ours(room)
    } else {
        check_others(room)
    }
}
