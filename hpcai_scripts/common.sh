# Sourced by the other scripts of this folder: installs missing packages, builds, finds the program. It never changes
# the working directory, so relative paths in flags keep the user's meaning.
# shellcheck shell=bash

cairn_root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)

say() { printf '%s\n' "$*" >&2; }
die() { # die EXIT_CODE MESSAGE
    say "$(basename -- "$0"): $2"
    exit "$1"
}

# ---- required packages ----
# Each package has a check for the file or program that the build needs, so other ways of installing it count too.

has_program() { command -v "$1" >/dev/null; }
has_library() { has_program pkg-config && pkg-config --exists "$1"; }
has_header() { has_program gcc && printf '#include <%s>\n' "$1" | gcc -E -x c - >/dev/null 2>&1; }
has_shared_library() { has_program gcc && [ "$(gcc -print-file-name="$1")" != "$1" ]; }
has_fuzzer() {
    local program
    program=$(mktemp)
    printf 'int LLVMFuzzerTestOneInput(const char *d, unsigned long n); int LLVMFuzzerTestOneInput(const char *d, unsigned long n) { return d && n > 9; }' |
        clang -fsanitize=fuzzer,address,undefined -x c - -o "$program" >/dev/null 2>&1
    local found=$?
    rm -f -- "$program"
    return "$found"
}

# The package with clang's sanitizer and fuzzer libraries: its name depends on the version.
clang_runtime_package() {
    local version
    version=$(clang --version | sed -n 's/.*clang version \([0-9]*\).*/\1/p')
    if apt-cache show "libclang-rt-$version-dev" >/dev/null 2>&1; then
        echo "libclang-rt-$version-dev"
    else
        echo "libclang-common-$version-dev"
    fi
}

missing_for_build() {
    has_program gcc || echo gcc
    has_program g++ || echo g++
    has_program cmake || echo cmake
    has_program ninja || echo ninja-build
    has_program pkg-config || echo pkg-config
    has_header dnnl.h || echo libdnnl-dev
    has_library libxxhash || echo libxxhash-dev
    has_library hdf5 || has_library hdf5-serial || echo libhdf5-dev
    has_header expat.h || echo libexpat1-dev
    has_header bzlib.h || echo libbz2-dev
    has_header zlib.h || echo zlib1g-dev
    has_header gloo/config.h || echo libgloo-dev
}

missing_for_tests() {
    missing_for_build
    has_library cmocka || echo libcmocka-dev
    has_program clang || echo clang
    has_program clang-format || echo clang-format
    has_program ip || echo iproute2 # hosts as network namespaces
    has_program mpirun || echo openmpi-bin
    has_shared_library libjemalloc.so.2 || echo libjemalloc2 # Grid Engine's daemons
    if has_program clang && ! has_fuzzer; then
        if has_program apt-cache; then clang_runtime_package; else echo "clang's compiler-rt (libclang-rt-dev)"; fi
    fi
}

is_debian() { has_program apt-get && [ -r /etc/debian_version ]; }

# install_packages PACKAGE...
install_packages() {
    local as_root=()
    is_debian || die 2 "install these first (names as in Debian), then run this again: $*"
    if [ "$(id -u)" -ne 0 ]; then
        has_program sudo || die 2 "neither root nor sudo; ask an administrator to install these, then run this again: $*"
        as_root=(sudo)
    fi
    say "installing: $*"
    "${as_root[@]}" apt-get update -q >&2 || die 1 "apt-get update failed; not installed: $*"
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "$@" >&2 ||
        die 1 "apt-get could not install: $*"
}

# require_installed build|tests. Installs in two rounds, because the name of clang's libraries depends on clang.
require_installed() {
    local round packages
    for round in 1 2 3; do
        mapfile -t packages < <("missing_for_$1")
        [ ${#packages[@]} -gt 0 ] || return 0
        [ "$round" -lt 3 ] || die 1 "installed, but still not found: ${packages[*]}"
        install_packages "${packages[@]}"
    done
}

# ---- signals ----

# run_alone COMMAND...: runs it in its own process group, forwards signals to that group, and returns its exit code.
# After a signal it kills the rest of the group. `stopped` is that signal, else empty. Without this the shell would end
# at a signal, and its child would keep running.
run_alone() {
    local code=0 again group name hurry=false
    stopped=
    set -m # the next job gets its own group
    "$@" </dev/null &
    group=$!
    set +m
    # shellcheck disable=SC2064 # expands the number now
    for name in HUP INT TERM USR1 USR2; do trap "stopped=$name hurry=true; kill -s $name -- -$group 2>/dev/null" "$name"; done
    # Under Grid Engine USR1 requests a save, not the end.
    if [ -n "${SGE_ROOT:-}" ] && [ -n "${JOB_ID:-}" ]; then trap 'hurry=true' USR1; fi
    wait "$group" 2>/dev/null || code=$?
    while $hurry; do # `wait` returns when a trap has run, too
        hurry=false again=0
        wait "$group" 2>/dev/null || again=$?
        [ "$again" -eq 127 ] || code=$again
    done
    trap - HUP INT TERM USR1 USR2
    [ -z "$stopped" ] || kill -KILL -- "-$group" 2>/dev/null || true
    return "$code"
}

# Ends the script if a signal arrived while there was nothing to save.
end_if_stopped() {
    local code=75
    [ -n "$stopped" ] || return 0
    if [ -n "${SGE_ROOT:-}" ] && [ -n "${JOB_ID:-}" ]; then code=99; fi
    die "$code" "stopped by SIG$stopped $1; nothing is lost, the same command starts again"
}

# ---- build ----

# show_build LOG: appends the build's output to LOG, and shows how far it is: a line that changes on a terminal, else a
# line for each quarter.
show_build() {
    local line percent shown=-1 step=25
    [ ! -t 2 ] || step=1
    while IFS= read -r line; do
        printf '%s\n' "$line" >>"$1"
        if [[ $line =~ ^\[([0-9]+)/([0-9]+)\] ]]; then # ninja
            percent=$((100 * BASH_REMATCH[1] / BASH_REMATCH[2]))
        elif [[ $line =~ ^\[\ *([0-9]+)%\] ]]; then # make
            percent=${BASH_REMATCH[1]}
        else
            continue
        fi
        percent=$((percent - percent % step))
        [ "$percent" -gt "$shown" ] || continue
        shown=$percent
        if [ -t 2 ]; then printf '\r\033[K%d %% built' "$percent" >&2; else say "$percent % built"; fi
    done
    [ ! -t 2 ] || printf '\r\033[K' >&2
}

cmake_flags=() # for all builds of a script

configure_and_build() { # configure_and_build PRESET FOLDER LOG [CMAKE_FLAG]... -- [TARGET_FLAG]...
    local preset=$1 folder=$2 log=$3 flags=()
    shift 3
    while [ "$1" != -- ]; do flags+=("$1") && shift; done
    shift
    (cd -- "$cairn_root" && cmake --preset "$preset" "${flags[@]}") >"$log" 2>&1 || return
    cmake --build "$folder" --parallel "$(nproc)" "$@" 2>&1 | show_build "$log"
    return "${PIPESTATUS[0]}"
}

# build_preset PRESET FOLDER [TARGET...]: configures and builds; its output is shown only when it fails. A signal ends
# the build, all its processes and the script.
build_preset() {
    local preset=$1 folder=$cairn_root/$2 flags=("${cmake_flags[@]}") targets=() log code=0
    shift 2
    [ $# -eq 0 ] || targets=(--target "$@")
    [ -f "$folder/CMakeCache.txt" ] || flags+=(-G Ninja)
    mkdir -p "$folder"
    log=$folder/build.log
    say "building $preset in $folder (its log: build.log)"
    run_alone configure_and_build "$preset" "$folder" "$log" "${flags[@]}" -- "${targets[@]}" || code=$?
    end_if_stopped "during the build"
    if [ "$code" -ne 0 ]; then
        tail -n 60 "$log" >&2
        say "building $preset failed"
        return 1
    fi
}

# Sets `cairn` to the program: $CAIRN_BINARY if set, else build/cairn, which it builds first.
find_cairn() {
    cairn=${CAIRN_BINARY:-}
    if [ -z "$cairn" ]; then
        require_installed build
        build_preset release build program || exit 1
        cairn=$cairn_root/build/cairn
    fi
    [ -x "$cairn" ] || die 2 "$cairn is missing or not executable"
}

# ---- configuration ----

# resolved OPTION: its value in the configuration that cairn resolved (in $config), as text.
resolved() { sed -n "s/^  \"$1\": \"\(.*\)\",\{0,1\}\$/\1/p" <<<"$config"; }

# The command whose flags the script passes on.
cairn_command=glue

# Sets `config` to the configuration that $cairn_command resolves from these flags, the environment and --config. Ends
# with cairn's message and exit code if it refuses them.
resolve_config() { config=$(CAIRN_PRINT_CONFIG=true "$cairn" "$cairn_command" "$@") || exit; }

# Whether these flags contain --output-dir: only a flag overrides the environment.
names_output() {
    local CAIRN_OUTPUT_DIR=$'not\tgiven'
    export CAIRN_OUTPUT_DIR
    resolve_config "$@"
    [ "$(resolved output-dir)" = results ]
}

# GLUE fine-tuning and evaluation: takes options that flags, environment and file leave open from BERT_DIR, GLUE_DIR and
# RESULTS_DIR. $1: the output folder's name, with "%s" for the task; the rest: flags for cairn.
fill_config() {
    local folder=$1
    shift
    resolve_config "$@"
    if [ -z "$(resolved model)" ] && [ -z "$(resolved model-config)" ]; then
        [ -n "${BERT_DIR:-}" ] || die 2 "set BERT_DIR to the model's folder (config.json, vocab.txt, weights), or give --model"
        export CAIRN_MODEL=$BERT_DIR
    fi
    if [ -z "$(resolved data-dir)" ]; then
        [ -n "${GLUE_DIR:-}" ] || die 2 "set GLUE_DIR to the folder with GLUE's data, or give --data-dir"
        export CAIRN_DATA_DIR=$GLUE_DIR
    fi
    # shellcheck disable=SC2059 # the format is the caller's
    fill_output "$(printf "$folder" "$(resolved task)")" "$@"
}

# Without a given output folder chooses $1 in RESULTS_DIR: then `default_output` is its path, else empty. The rest:
# flags for cairn. Needs `config`, and resolves it again.
fill_output() {
    local folder=$1
    shift
    default_output=
    if [ -z "${CAIRN_OUTPUT_DIR:-}" ] && [ "$(resolved output-dir)" = results ] && ! names_output "$@"; then
        default_output=${RESULTS_DIR:-$cairn_root/results}/$folder
        export CAIRN_OUTPUT_DIR=$default_output
    fi
    resolve_config "$@"
}

# ---- an earlier run in the default output folder ----

# Whether the finished run in folder $1 had the flags of $config, except for paths, resuming, saving and logging.
same_run() {
    local options='^  "[a-z0-9-]+": '
    local ignored='"(output-dir|resume|override|log-every|save-every|save-steps|keep|max-time|verbose|dry-run)"'
    diff -q <(grep -E "$options" <<<"$config" | grep -Ev "$ignored" | sed 's/,$//') \
        <(grep -E "$options" "$1/run.json" | grep -Ev "$ignored" | sed 's/,$//') >/dev/null
}

# Moves a finished run with other flags than $config's out of $default_output, where the launcher accepts its flags.
# run.json is written when a run ends.
make_room() {
    local n=1
    ! $multinode || CAIRN_PRINT_CONFIG=true "$cairn" launch "${launch_flags[@]}" >/dev/null || exit
    if [ -z "$default_output" ] || [ ! -e "$default_output/run.json" ] || same_run "$default_output"; then return; fi
    while [ -e "$default_output.$n" ]; do n=$((n + 1)); done
    mv -- "$default_output" "$default_output.$n"
    say "$default_output held a finished run with other flags; it is now $default_output.$n"
}

# ---- many ranks ----

# take_launch_flags FLAG...: splits the flags into launch_flags (for `cairn launch`) and other_flags. `multinode`:
# whether `cairn launch` starts the ranks.
take_launch_flags() {
    launch_flags=() other_flags=()
    multinode=${multinode:-false}
    while [ $# -gt 0 ]; do
        case $1 in
        --multinode) multinode=true ;;
        --ranks=* | --hosts=* | --max[-_]restarts=*) multinode=true && launch_flags+=("$1") ;;
        --ranks | --hosts | --max[-_]restarts)
            [ $# -ge 2 ] || die 2 "$1 needs a value"
            multinode=true
            launch_flags+=("$1=$2")
            shift
            ;;
        *) other_flags+=("$1") ;;
        esac
        shift
    done
    case " ${launch_flags[*]}" in
    *" --max"*) ;;
    *) launch_flags+=("--max-restarts=${CAIRN_MAX_RESTARTS:-3}") ;;
    esac
}

# start_cairn COMMAND FLAG...: executes the program, or with $multinode its launcher.
start_cairn() {
    if $multinode; then
        exec "$cairn" launch "${launch_flags[@]}" -- "$@"
    fi
    exec "$cairn" "$@"
}

# run_multinode SCRIPT EXAMPLE FLAG...: runs SCRIPT of this folder on all hosts of a job; --help shows EXAMPLE.
run_multinode() {
    local script=$1 example=$2 self argument
    self=$(basename -- "$0")
    shift 2
    for argument in "$@"; do
        case $argument in -h | --help) ;; *) continue ;; esac
        cat <<END
$self [--ranks N] [--hosts FILE] [--max-restarts K] [any flag of $script]...

Runs $script on every host of the current job of PBS (PBS_NODEFILE), Grid Engine (PE_HOSTFILE) or Slurm; or on
those of --hosts; else on this host. Call it once, on the first host: it starts the ranks on the others (by ssh; under
Slurm by srun, under Grid Engine by qrsh), forwards signals, restarts after a fault, and leaves no process behind. The
source folder and all paths must be the same on all hosts (a shared file system).
  --hosts FILE    other hosts, one line each: NAME [slots=N]
  --ranks N       world size (default: one rank per GPU, or per host without GPUs); --batch-size is for all ranks
  --max-restarts  restarts after a fault, at most (default 3)

    qsub -I -l select=2:ngpus=4:ncpus=20:mpiprocs=4:mem=64gb,place=scatter # and then, on the first node:
    ./hpcai_scripts/$self $example

Exit codes: as $script; 77: a host or a rank was lost after the last restart, 78: --audit found damaged memory after
it; 99 for 75 under Grid Engine.
See docs/cluster.md for details.
END
        return 0
    done
    exec "$cairn_root/hpcai_scripts/$script" --multinode "$@"
}
