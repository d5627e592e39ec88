# A Grid Engine of the test's own on the hosts of tests/dist/hosts.sh: the master here (its name has an address that is
# not loopback's), an execution daemon on each of h1 … hN with two slots, a parallel environment `mpi`, one queue.
# All files are in /run/netns/ge and in the test's namespaces. The packages need not be installed: they are unpacked into
# the build folder and mounted over /usr in the test's mount namespace.
# shellcheck shell=bash disable=SC2154 # $work: lib.sh

# shellcheck source=tests/schedulers/packages.sh
source "$source_dir/tests/schedulers/packages.sh"

# Ends the test with 77 (skipped) if Grid Engine is not installed and cannot be fetched.
grid_engine_or_skip() {
    local folder=${CAIRN_TEST_BUILD_DIR:-$source_dir/build}/grid-engine missing
    [ -z "${CAIRN_TEST_HOSTS:-}" ] || return 0
    if [ -x /usr/lib/gridengine/sge_qmaster ] && [ -x /usr/lib/gridengine/sge_execd ]; then return 0; fi
    if ! fetch_packages "$folder" gridengine-{common,master,exec,client}; then
        echo "skipped: Grid Engine is not installed, and its packages cannot be fetched"
        exit 77
    fi
    missing=$(missing_libraries "$folder" lib/gridengine/{sge_qmaster,sge_execd,qsub})
    if [ -n "$missing" ]; then
        echo "skipped: libraries of Grid Engine's packages are missing: $missing"
        exit 77
    fi
    export CAIRN_TEST_GRID_ENGINE=$folder
}

# grid_engine_start N: returns when all N hosts have reported.
grid_engine_start() {
    local n=$1 i end
    ge=/run/netns/ge
    [ -z "${CAIRN_TEST_GRID_ENGINE:-}" ] || overlay_packages "$CAIRN_TEST_GRID_ENGINE"
    mkdir -p "$ge/default/common" "$ge/qmaster/job_scripts" "$ge/spooldb" "$ge/execd" "$ge/log"
    cp -rL /usr/share/gridengine/util "$ge/util"
    mkdir -p "$ge/bin" "$ge/utilbin"
    ln -s /usr/lib/gridengine "$ge/bin/lx-amd64"
    ln -s /usr/lib/gridengine "$ge/utilbin/lx-amd64"
    export SGE_ROOT=$ge SGE_CELL=default SGE_QMASTER_PORT=6444 SGE_EXECD_PORT=6445 SGE_ND=1
    export PATH=/usr/lib/gridengine:$PATH
    echo h0 >"$ge/default/common/act_qmaster"
    cat >"$ge/default/common/bootstrap" <<END
admin_user              none
default_domain          none
ignore_fqdn             false
spooling_method         berkeleydb
spooling_lib            libspoolb
spooling_params         $ge/spooldb
binary_path             /usr/lib/gridengine
qmaster_spool_dir       $ge/qmaster
security_mode           none
listener_threads        2
worker_threads          2
scheduler_threads       1
END
    sed "s|^execd_spool_dir.*|execd_spool_dir $ge/execd|; s|^min_uid.*|min_uid 0|; s|^min_gid.*|min_gid 0|
        s|^shell_start_mode.*|shell_start_mode unix_behavior|; s|^load_report_time.*|load_report_time 00:00:02|
        s|^mailer.*|mailer /bin/true|; s|^loglevel.*|loglevel log_info|" \
        /usr/share/gridengine/default-configuration >"$ge/configuration"
    {
        spoolinit berkeleydb libspoolb "$ge/spooldb" init
        spooldefaults configuration "$ge/configuration"
        spooldefaults complexes /usr/share/gridengine/util/resources/centry
        spooldefaults usersets /usr/share/gridengine/util/resources/usersets
        spooldefaults managers root
    } >"$ge/log/init" 2>&1 || return 1
    sge_qmaster >"$ge/log/qmaster" 2>&1 &
    disown
    end=$((SECONDS + hang_limit))
    until qconf -sh >/dev/null 2>&1; do [ "$SECONDS" -lt "$end" ] || return 1; sleep 0.2; done
    {
        qconf -as h0
        for ((i = 1; i <= n; i++)); do qconf -ah "h$i" && qconf -as "h$i"; done
        # shellcheck disable=SC2016 # the $ is Grid Engine's
        printf 'pe_name mpi\nslots 999\nuser_lists NONE\nxuser_lists NONE\nstart_proc_args NONE\nstop_proc_args NONE\nallocation_rule $round_robin\ncontrol_slaves TRUE\njob_is_first_task FALSE\nurgency_slots min\naccounting_summary FALSE\nqsort_args NONE\n' >"$ge/pe"
        qconf -Ap "$ge/pe"
        qconf -ssconf | sed 's/^schedule_interval.*/schedule_interval 0:0:1/; s/^flush_submit_sec.*/flush_submit_sec 1/; s/^flush_finish_sec.*/flush_finish_sec 1/' >"$ge/scheduler"
        qconf -Msconf "$ge/scheduler"
    } >"$ge/log/qconf" 2>&1
    for ((i = 1; i <= n; i++)); do
        nsenter --net="/run/netns/h$i" unshare --uts sh -c "hostname h$i; exec sge_execd" >"$ge/log/h$i" 2>&1 &
        disown
    done
    end=$((SECONDS + hang_limit))
    until [ "$(qconf -sel 2>/dev/null | grep -c '^h[1-9]')" -eq "$n" ]; do [ "$SECONDS" -lt "$end" ] || return 1; sleep 0.2; done
    qconf -sq 2>/dev/null | sed "s/^qname.*/qname all.q/; s/^hostlist.*/hostlist $(for ((i = 1; i <= n; i++)); do printf 'h%d ' "$i"; done)/
        s/^slots .*/slots 2/; s/^pe_list.*/pe_list mpi/; s/^notify.*/notify 00:02:00/; s/^shell .*/shell \/bin\/bash/
        s/^load_thresholds.*/load_thresholds NONE/; s/^rerun.*/rerun TRUE/; s/^shell_start_mode.*/shell_start_mode unix_behavior/" >"$ge/queue"
    qconf -Aq "$ge/queue" >>"$ge/log/qconf" 2>&1 || return 1
    until [ "$(qhost 2>/dev/null | awk '/^h[1-9]/ && $4 != "-"' | wc -l)" -eq "$n" ]; do [ "$SECONDS" -lt "$end" ] || return 1; sleep 0.2; done
}
