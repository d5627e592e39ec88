#!/usr/bin/env bash
# Runs a command of this checkout in newly made roots of Debian and Ubuntu, where nothing is installed yet.
set -euo pipefail
# shellcheck source=hpcai_scripts/common.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/../../hpcai_scripts/common.sh"

usage() {
    cat <<'END'
tests/fresh/run.sh [SUITE...] [--command quickstart|test|build] [--compilers gcc-13,clang-18,...]

For each SUITE (bookworm, trixie, jammy, noble; default: all) makes a minimal root with debootstrap, clones this checkout
into it (its last commit), runs the command there as root, and removes the root. It needs root, debootstrap, an archive
of packages, and about 5 GB in TMPDIR. The command installs what it needs with apt.
  --command quickstart  ./hpcai_scripts/quickstart.sh (the default)
  --command test        ./hpcai_scripts/test.sh
  --command build       builds the program, its tests and bench/, where each warning is an error
  --compilers LIST      compilers for `build`, by package name; each builds everything (default: gcc)
Prints one line per root and compiler: passed, failed, or not reached; the command's seconds; the compiler's version. Its
output is in build-fresh/.
  DEBIAN_MIRROR, UBUNTU_MIRROR  archives (default: http://deb.debian.org/debian, http://archive.ubuntu.com/ubuntu)
Debootstrap checks an archive's signature where its keys are installed: debian-archive-keyring, ubuntu-keyring.
"not reached": no root could be made, or the suite lacks the compiler. This fails no other root.
Exit codes: 0 all that was reached passed, 1 something failed or nothing was reached, 2 usage, 75 stopped by a signal.
END
}

suites=() command=quickstart compilers=()
while [ $# -gt 0 ]; do
    case $1 in
    -h | --help) usage && exit 0 ;;
    bookworm | trixie | jammy | noble) suites+=("$1") ;;
    --command=* | --compilers=*) set -- "${1%%=*}" "${1#*=}" "${@:2}" && continue ;;
    --command)
        case ${2:-} in quickstart | test | build) command=$2 ;; *) die 2 "--command needs quickstart, test or build" ;; esac
        shift
        ;;
    --compilers)
        [[ ${2:-} =~ ^(gcc|clang)(-[0-9]+)?(,(gcc|clang)(-[0-9]+)?)*$ ]] || die 2 "--compilers needs a list like gcc-13,clang"
        IFS=, read -r -a compilers <<<"$2"
        shift
        ;;
    *) die 2 "'$1': expected bookworm, trixie, jammy, noble, --command or --compilers" ;;
    esac
    shift
done
[ ${#suites[@]} -gt 0 ] || suites=(bookworm trixie jammy noble)
[ ${#compilers[@]} -eq 0 ] || [ "$command" = build ] || die 2 "--compilers goes with --command build"
[ ${#compilers[@]} -gt 0 ] || compilers=(gcc)
[ "$(id -u)" -eq 0 ] || die 2 "only root can make roots; run it by sudo"
has_program debootstrap || die 2 "debootstrap is missing; install it (apt-get install debootstrap)"
has_program git || die 2 "git is missing; install it (apt-get install git)"
git -C "$cairn_root" rev-parse --verify -q HEAD >/dev/null || die 2 "$cairn_root is no clone of a repository that git accepts"
# Processes and mounts of a root are in namespaces of their own: the kernel ends both.
apart=(unshare --mount --pid --fork --kill-child --)
"${apart[@]}" true || die 2 "the kernel refuses namespaces for mounts and processes; a container needs CAP_SYS_ADMIN"

logs=$cairn_root/build-fresh
mkdir -p "$logs"
roots=$(mktemp -d)
# shellcheck disable=SC2317 # by trap
remove_roots() {
    local tries
    for tries in {1..50}; do # killed processes may write for a moment
        rm -rf --one-file-system -- "$roots" 2>/dev/null && return
        sleep 0.1
    done
    say "not removed: $roots ($tries tries)"
}
trap remove_roots EXIT

# logged LOG COMMAND...: ends the script at a signal.
logged() {
    local log=$1 code=0
    shift
    run_alone "$@" >>"$log" 2>&1 || code=$?
    end_if_stopped "with $suite"
    return "$code"
}

make_root() { # make_root SUITE LOG
    local mirror=${UBUNTU_MIRROR:-http://archive.ubuntu.com/ubuntu} components=main,universe like=gutsy
    case $1 in bookworm | trixie) mirror=${DEBIAN_MIRROR:-http://deb.debian.org/debian} components=main like=sid ;; esac
    # `like`: a script of debootstrap, which may not know a later suite.
    logged "$2" "${apart[@]}" debootstrap --variant=minbase --components="$components" "$1" "$roots/$1" "$mirror" "$like" || return
    printf 'deb %s %s-updates %s\n' "$mirror" "$1" "${components/,/ }" >>"$roots/$1/etc/apt/sources.list"
    logged "$2" git clone -q --no-hardlinks "$cairn_root" "$roots/$1/cairn"
}

# in_root SUITE COMMAND...: with the environment of a user who has just logged in.
in_root() {
    # shellcheck disable=SC2016 # expands in the namespace
    "${apart[@]}" bash -euc '
        cd -- "$1"
        mount -t proc proc proc
        mount --rbind /sys sys
        mount --rbind /dev dev
        mount -t tmpfs -o mode=1777 tmpfs dev/shm
        shift
        chroot . env -i HOME=/root PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin "$@" || exit' \
        in_root "$roots/$1" ${http_proxy:+"http_proxy=$http_proxy"} "${@:2}"
}

# shellcheck disable=SC2317 # in the root
# build_with COMPILER, 77: the suite does not have it.
build_with() {
    local cxx version packages
    set -euo pipefail
    # shellcheck source=hpcai_scripts/common.sh
    source /cairn/hpcai_scripts/common.sh
    case $1 in
    gcc*) cxx=g++${1#gcc} packages=("$1" "g++${1#gcc}") ;;
    clang*) cxx=clang++${1#clang} packages=("$1" "libomp${1#clang}-dev") ;;
    esac
    apt-get update -q
    apt-get install -q --simulate "${packages[@]}" >/dev/null || exit 77
    require_installed build
    install_packages libcmocka-dev "${packages[@]}"
    # A folder of its own beside /cairn: the tests of another compiler are built, too.
    cmake -S /cairn -B "/build-$1" -G Ninja -DCMAKE_C_COMPILER="$1" -DCMAKE_CXX_COMPILER="$cxx" -DCAIRN_WERROR=ON
    cmake --build "/build-$1" --target all bench -- -k 0
}

# run_in SUITE COMPILER LOG
run_in() {
    case $command in
    build) logged "$3" in_root "$1" bash -c "$(declare -f build_with); build_with $2" ;;
    *) logged "$3" in_root "$1" bash "/cairn/hpcai_scripts/$command.sh" ;;
    esac
}

failed=0 reached=0
line() { printf '%-9s %-10s %-11s %6s  %s\n' "$@"; }
for suite in "${suites[@]}"; do
    log=$logs/$suite.log
    rm -f -- "$log"
    say "== $suite: making a root (its log: $log) =="
    if ! make_root "$suite" "$log"; then
        line "$suite" "$command" 'not reached' '' "$({ grep -a '^E: ' "$log" || tail -n 1 "$log"; } | tail -n 1)"
        rm -rf --one-file-system -- "${roots:?}/$suite"
        continue
    fi
    for compiler in "${compilers[@]}"; do
        [ "$command" = build ] && log=$logs/$suite-$compiler.log && rm -f -- "$log"
        say "== $suite: $command (its log: $log) =="
        before=$SECONDS code=0 verdict=passed
        run_in "$suite" "$compiler" "$log" || code=$?
        took=$((SECONDS - before))
        if [ "$command$code" = build77 ]; then
            line "$suite" "$command" 'not reached' '' "$suite has no $compiler"
            continue
        fi
        reached=$((reached + 1))
        [ "$code" -eq 0 ] || { verdict=failed failed=1 && tail -n 20 "$log" >&2; }
        version=$(chroot "$roots/$suite" "$compiler" --version 2>/dev/null | head -n 1 || true)
        line "$suite" "$command" "$verdict" "$took s" "${version:-without a compiler}"
    done
    rm -rf --one-file-system -- "${roots:?}/$suite"
done
[ "$failed" -eq 0 ] && [ "$reached" -gt 0 ]
