# Checks who includes whom, as docs/design.md, "The rooms", says. Input: lines "file:line:text" of #include directives.
# Prints each that is not allowed.

BEGIN {
    FS = ":"
    # room: which headers of other rooms it may include. A folder with a slash at its end stands for everything below it,
    # in rooms of its own too. A file's room is the deepest folder here that it lies in. Everyone may include base/ and
    # his own room. No room may reach itself through others.
    allow["src/base"] = ""
    allow["src/faults"] = ""
    allow["src/config"] = ""
    allow["src/text"] = "config/"
    allow["src/data"] = "text/ config/ model/inputs.h"
    allow["src/plan/pipeline"] = ""
    allow["src/plan"] = "kernels/op.h plan/pipeline/"
    allow["src/model"] = "plan/plan.h config/"
    allow["src/optim"] = "plan/plan.h model/"
    allow["src/comm/watch"] = ""
    allow["src/comm/meet"] = "comm/watch/"
    allow["src/comm/mesh"] = "comm/watch/ comm/meet/"
    allow["src/launch"] = "config/ comm/meet/ comm/mesh/ faults/ report/"
    allow["src/holding"] = "config/ model/ optim/ plan/pipeline/ comm/mesh/ kernels/backend.h"
    allow["src/exec"] = "plan/ comm/mesh/ holding/ kernels/backend.h"
    allow["src/formats"] = ""
    allow["src/state/models"] = "formats/ model/ text/"
    allow["src/state/checkpoint"] = "formats/ model/ state/models/"
    allow["src/state/snapshot"] = "model/ comm/mesh/ state/checkpoint/"
    allow["src/report"] = "faults/"
    allow["src/train/ranks"] = "config/ comm/meet/ comm/mesh/ kernels/backend.h"
    allow["src/train/parts"] = "config/ plan/ model/ optim/ comm/mesh/ holding/ exec/ kernels/backend.h"
    allow["src/train/planner"] = allow["src/train/parts"] " state/snapshot/ data/ train/ranks/ train/parts/"
    allow["src/train/pipelines"] = allow["src/train/planner"] " report/ train/planner/"
    allow["src/train/session"] = allow["src/train/pipelines"] " train/pipelines/"
    allow["src/train/job"] = allow["src/train/session"] " text/ state/models/ state/checkpoint/ train/session/"
    allow["src/train/measure"] = allow["src/train/job"] " kernels/device.h train/job/"
    allow["src/train/keep"] = allow["src/train/job"] " formats/ comm/meet/ train/job/"
    allow["src/train/loop"] = allow["src/train/keep"] " faults/ kernels/device.h train/measure/ train/keep/"
    allow["src/train/run"] = allow["src/train/loop"] " train/loop/"
    allow["src/commands"] = allow["src/train/run"] " train/run/ tasks/ launch/"
    allow["src/main.c"] = "config/ commands/ train/ranks/signals.h"
    allow["tasks"] = allow["src/train/run"] " train/run/"
    allow["kernels"] = "kernels/op.h kernels/op_list.h kernels/backend.h kernels/device.h kernels/adam.h kernels/dropout.h kernels/kfac.h kernels/loss_scale.h kernels/word_mix.h kernels/host.h"

    # Headers of others, and the files or folders that alone may include them.
    vendor["dnnl"] = "kernels/cpu/onednn"
    vendor["oneapi"] = "kernels/cpu/onednn"
    vendor["omp"] = "kernels/cpu/"
    vendor["xxh"] = "src/base/digest.c"
    vendor["hdf5"] = "src/data/hdf5"
    vendor["expat"] = "tasks/pretrain/wiki/with_expat/"
    vendor["bzlib"] = "src/data/bz2_bzlib"
    vendor["zlib"] = "src/data/gz_zlib"
    vendor["gloo"] = "src/comm/mesh/gloo"
    vendor["nccl"] = "src/comm/mesh/nccl tests/cuda_host/nccl_twin"
    vendor["cuda"] = "kernels/cuda/ tests/cuda_host/ bench/bench_products"
    vendor["nvtx3"] = "kernels/cuda/nvtx tests/"
    vendor["cublas"] = "kernels/cuda/ tests/cuda_host/ bench/bench_products"
    vendor["cudnn"] = "kernels/cuda/ tests/cuda_host/"
    vendor["cmocka"] = "tests/"
    vendor["immintrin"] = "kernels/cpu/ tests/"

    # plan/ is pure C11.
    split("assert ctype errno float inttypes limits math stdarg stdatomic stdbool stddef stdint stdio stdlib string", c11, " ")
    for (i in c11) standard[c11[i] ".h"] = 1

    check_circles()
}

function refuse(why) { printf "%s:%s: %s %s\n", file, line, header, why }

# "": the table has none.
function room_of(path) {
    while (path != "" && !(path in allow)) path = path ~ /\// ? substr(path, 1, match(path, /\/[^\/]*$/) - 1) : ""
    return path
}

# Where a header or folder lies that is written as in the sources: "plan/plan.h" is src/plan/plan.h.
function place_of(header) { return header ~ /^(kernels|tasks)\// ? header : "src/" header }

function may_reach(room, other,    n, i, parts) {
    if (other == "src/base") return 1
    n = split(allow[room], parts, " ")
    for (i = 1; i <= n; i++)
        if (parts[i] ~ /\/$/ ? index(other "/", place_of(parts[i])) == 1 : room_of(place_of(parts[i])) == other) return 1
    return 0
}

# Takes away each room that may include none of the others that are left, as long as there is one.
function check_circles(    room, other, left, gone, n) {
    for (room in allow) left[room]
    do {
        gone = 0
        for (room in left) {
            n = 0
            for (other in left) n += other != room && may_reach(room, other)
            if (n) continue
            delete left[room]
            gone = 1
        }
    } while (gone)
    for (room in left) print "tests/rules/includes.awk: the table has a circle: " room " is part of it or leads to it"
}

function own(room, path) {
    if (room == "tasks") { # tasks do not know each other
        return path ~ /^tasks\/[^\/]+\// && index(header, substr(path, 1, index(substr(path, 7), "/") + 6)) == 1
    }
    if (room == "kernels") { # a backend knows its own folder
        return path ~ /^kernels\/[^\/]+\// && index(header, substr(path, 1, index(substr(path, 9), "/") + 8)) == 1
    }
    return room_of(place_of(header)) == room
}

function check_ours(room,    n, i, parts) {
    if (header !~ /\//) return refuse("is not written with its folder (\"base/base.h\")")
    if (header ~ /(^|\/)\.\.?\//) return refuse("is written with . or ..")
    if (index(header, "base/") == 1 || own(room, file)) return
    if (header ~ /_internal\.h$/) return refuse("is internal to its folder")
    n = split(allow[room], parts, " ")
    for (i = 1; i <= n; i++) {
        if (header == parts[i]) return
        if (parts[i] ~ /\/$/ && index(header, parts[i]) == 1) return
    }
    refuse("may not be included by " room)
}

function check_others(room,    name, n, i, parts, good) {
    if (room_of(place_of(header)) != "") refuse("is ours: it is written in quotes")
    for (name in vendor) {
        if (index(header, name) != 1) continue
        n = split(vendor[name], parts, " ")
        good = 0
        for (i = 1; i <= n; i++) good += index(file, parts[i]) == 1
        if (!good) refuse("may be included by " vendor[name] " only")
    }
    if (room ~ /^src\/plan(\/|$)/ && !(header in standard)) refuse("is not C11's; plan/ is pure C11")
}

{
    file = $1
    line = $2
    text = substr($0, length(file) + length(line) + 3)
    if (!match(text, /["<][^">]*[">]/)) {
        header = text
        refuse("does not name a header")
        next
    }
    quoted = substr(text, RSTART, 1) == "\""
    header = substr(text, RSTART + 1, RLENGTH - 2)
    room = room_of(file)
    if (file ~ /^(tests|bench)\//) { # they may look everywhere, but not at the libraries behind
        if (!quoted) check_others(room)
    } else if (quoted) {
        if (room == "") refuse("is included by a file whose folder tests/rules/includes.awk does not know")
        else check_ours(room)
    } else {
        check_others(room)
    }
}
