#!/usr/bin/env bash
# packaging/: every recipe has the version of the source and the libraries that the scripts install; the modulefile finds the
# installation; under `test.sh deep` the Debian package is built, without a complaint of lintian, and its program runs.
set -euo pipefail
# shellcheck source=tests/scripts/lib.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"

packaging=$source_dir/packaging
version=$("$CAIRN_BINARY" --version | cut -d' ' -f2)
head -n 1 "$packaging/debian/changelog" | grep -qF "($version-" || complain "debian/changelog has another version than $version"
grep -qF "version(\"$version\")" "$packaging/spack/package.py" || complain "Spack's package has another version than $version"

# missing_for_build names the packages.
mapfile -t packages < <(sed -n '/^missing_for_build/,/^}/s/.*echo \([a-z0-9+-]*\).*/\1/p' "$scripts/common.sh")
[ ${#packages[@]} -gt 10 ] || complain "common.sh names ${#packages[@]} packages"
for package in "${packages[@]}"; do
    grep -qwF -- "$package" "$packaging/apptainer/cairn.def" || complain "cairn.def does not install $package"
    [[ $package == gcc || $package == g++ ]] || grep -qwF -- "$package" "$packaging/debian/control" || complain "debian/control does not need $package"
done
# Every file that the container's recipe takes exists; a new folder of sources must be added to it.
while read -r path _; do
    [ -e "$source_dir/$path" ] || complain "cairn.def takes $path, which does not exist"
done < <(sed -n '/^%files/,/^$/s/^ \{4\}//p' "$packaging/apptainer/cairn.def")
for folder in $(sed -n 's/^add_subdirectory(\([a-z]*\)[^a-z/].*/\1/p' "$source_dir/CMakeLists.txt"); do
    grep -qE "^ +$folder " "$packaging/apptainer/cairn.def" || complain "cairn.def lacks $folder/"
done
# Spack's package, with a stand-in for Spack: it loads, and names options that the build has.
if command -v python3 >/dev/null; then
    cat >spack_stub.py <<'END'
import re, runpy, sys, types
from pathlib import Path

options, package = set(re.findall("^([A-Z_0-9]+):", Path(sys.argv[1]).read_text(), re.M)), sys.argv[2]
needed, variants = [], []
class Package:
    run_tests = False
    def define(self, name, value):
        return f"-D{name}={'ON' if value else 'OFF'}"
names = dict(CMakePackage=Package, CudaPackage=type("CudaPackage", (), {}), license=lambda *a: None, version=lambda *a: None,
             variant=lambda name, **a: variants.append(name), depends_on=lambda name, **a: needed.append((name, a)))
for module in ("spack", "spack.package"):
    sys.modules[module] = types.ModuleType(module)
sys.modules["spack.package"].__dict__.update(names, __all__=list(names))
cairn = runpy.run_path(package)["Cairn"]()
cairn.spec = types.SimpleNamespace(satisfies=lambda what: what == "+gloo")
given = dict(re.fullmatch("-D(.*)=(.*)", word).groups() for word in cairn.cmake_args())
assert options.issuperset(given), f"the build has no {set(given) - options}"
assert given["WITH_GLOO"] == "ON" and given["WITH_HDF5"] == "OFF", given
for name, when in needed:
    for variant in re.findall(r"\+(\w+)", when.get("when", "")):
        assert variant in variants + ["cuda"], f"{name} is of a variant that does not exist: {variant}"
END
    expect 0 python3 spack_stub.py "${CAIRN_TEST_BUILD_DIR:-$source_dir/build}/CMakeCache.txt" "$packaging/spack/package.py"
fi

# apptainer.sh with a stand-in that notes its words and runs them on this host, where the container's folder is the
# source's.
mkdir -p bin "home dir" results
cat >bin/apptainer <<'END'
#!/bin/bash
printf '%s\n' "$*" >>"$NOTES"
case $1 in build) : >"$2" && exit ;; exec) shift ;; *) exit 9 ;; esac
while [[ $1 == --* ]]; do [ "$1" = --nv ] || shift; shift; done
[ -f "$1" ] || exit 8
set -- "${@:2}"
[[ $1 == cairn ]] && set -- "$OWN_PROGRAM" "${@:2}"
export CAIRN_BINARY=$OWN_PROGRAM
exec "${@/#\/opt\/cairn/$SOURCE}"
END
printf '#!/bin/bash\nprintf "%%s\\n" "ssh $*" >>"$NOTES"\nexec sh -c "${@: -1}"\n' >bin/ssh
chmod +x bin/apptainer bin/ssh
in_container() { env PATH="$work/bin:$PATH" NOTES="$work/notes" OWN_PROGRAM="$CAIRN_BINARY" SOURCE="$source_dir" TMPDIR=/tmp "$@"; }
expect 2 in_container RESULTS_DIR="home dir" CONT=made.sif "$scripts/apptainer.sh" plan --help
says "Apptainer takes no folder with a blank"
plain=$(mktemp -d /tmp/cairn-apptainer-XXXXXX)
trap 'rm -rf -- "$work" "$plain"' EXIT
expect 0 in_container RESULTS_DIR="$plain" CONT=image.sif "$scripts/apptainer.sh" plan --model-config bert-tiny --batch-size 8
says "half-attention"
grep -qE "^build .*image.sif packaging/apptainer/cairn.def$" notes || complain "no image was built: $(cat notes)"
grep -qE "^exec (--nv )?--bind $plain $work/image.sif cairn plan --model-config bert-tiny --batch-size 8$" notes || complain "notes: $(cat notes)"
expect 0 in_container RESULTS_DIR="$plain" CONT=image.sif "$scripts/apptainer.sh" run_glue.sh --task RTE --model none --data-dir none --print-config
says '"task": "RTE"' "\"output-dir\": \"$plain/RTE\""
grep -q '^build' <(tail -n 1 notes) && complain "the image was built again"
expect 2 in_container RESULTS_DIR="$plain" CONT=image.sif "$scripts/apptainer.sh" nosuch.sh
says "there is no script hpcai_scripts/nosuch.sh"
# The command of another host arrives whole.
expect 0 in_container CONT="$work/image.sif" CONT_START="apptainer exec --bind $plain" "$scripts/apptainer.sh" --on node7 "echo 'a  b' \"\$((1 + 2))\""
says "a  b 3"
grep -q '^ssh -o BatchMode=yes node7 apptainer exec' notes || complain "notes: $(cat notes)"

# The modulefile of an installation.
expect 0 cmake --install "${CAIRN_TEST_BUILD_DIR:-$source_dir/build}" --prefix "$work/prefix"
has_file "prefix/share/modulefiles/cairn/$version"
if command -v tclsh >/dev/null; then
    cat >stub.tcl <<'END'
foreach word {module-whatis conflict} { proc $word args {} }
proc prepend-path {name value} { puts "$name=$value" }
set ModulesCurrentModulefile [lindex $argv 0]
source $ModulesCurrentModulefile
END
    expect 0 tclsh stub.tcl "prefix/share/modulefiles/cairn/$version"
    says "PATH=$work/prefix/bin" "MANPATH=$work/prefix/share/man"
fi

if [ -n "${CAIRN_TEST_DEEP:-}" ] && command -v dh >/dev/null && command -v dpkg-buildpackage >/dev/null; then
    mkdir -p debian/source
    (cd -- "$source_dir" && tar -c --exclude='./build*' --exclude=./results --exclude=./.git .) | tar -x -C debian/source
    cd debian/source
    cp -r packaging/debian .
    expect 0 dpkg-buildpackage -b -us -uc -d
    cd ..
    has_file "cairn_$version-1_$(dpkg --print-architecture).deb"
    if command -v lintian >/dev/null; then
        expect 0 lintian --allow-root --fail-on error,warning ./*.deb
        [ -z "$output" ] || complain "lintian says: $output"
    fi
    dpkg-deb -x cairn_*_*.deb unpacked
    expect 0 env -u CAIRN_BACKEND_DIR unpacked/usr/bin/cairn doctor --output-dir "$work"
    has_file unpacked/usr/lib/cairn/cairn_cpu.so unpacked/usr/share/man/man1/cairn.1.gz
    # The package's own test, as autopkgtest runs it after installing: in the source folder, with the package's program.
    cd source
    expect 0 env -u CAIRN_BACKEND_DIR CAIRN_BINARY="$work/debian/unpacked/usr/bin/cairn" AUTOPKGTEST_TMP="$work" sh debian/tests/quickstart
    says "equal, bit for bit, over 20 steps"
fi
finish
