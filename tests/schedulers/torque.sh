# PBS's commands on top of the Slurm of slurm.sh: qsub of slurm-wlm-torque, unpacked into the build folder (it cannot be
# installed beside gridengine-client).
# shellcheck shell=bash disable=SC2154 # $source_dir: lib.sh

# torque_fetch: before within_hosts. False if the packages cannot be fetched.
torque_fetch() {
    torque=${CAIRN_TEST_BUILD_DIR:-$source_dir/build}/torque
    [ ! -e "$torque/done" ] || return 0
    mkdir -p "$torque/debs"
    (cd -- "$torque/debs" && timeout 60 apt-get download slurm-wlm-torque libslurm-perl libslurm38) >/dev/null 2>&1 || return 1
    local package
    for package in "$torque"/debs/*.deb; do dpkg -x "$package" "$torque/root" || return 1; done
    touch "$torque/done"
}

# qsub and the others, as commands.
torque_use() {
    local modules
    ln -sf /usr/bin/sbatch /usr/bin/salloc "$torque/root/usr/bin/"
    modules=$(find "$torque/root/usr/lib" -type d -path '*/perl5/*' -name '5.*' | head -n 1)
    LD_LIBRARY_PATH=$(dirname -- "$(find "$torque/root/usr/lib" -name 'libslurm.so.*' | head -n 1)")
    export LD_LIBRARY_PATH PERL5LIB=$modules PATH=$torque/root/usr/bin:$PATH
}
