# Sourced by job.pbs, job.slurm and job.sge in the source folder: their common part.
# shellcheck shell=bash disable=SC2034 # `code` and `forwarded` are for the job files

# shellcheck source=hpcai_scripts/common.sh
source hpcai_scripts/common.sh

under_grid_engine() { [ -n "${SGE_ROOT:-}" ] && [ -n "${JOB_ID:-}" ]; }

# ---- signals ----

# run_forwarding COMMAND...: runs it, forwards signals to it, and returns its exit code. Without this the shell would end
# at a signal before its child, or ignore it. `forwarded`: whether a signal arrived.
run_forwarding() {
    local code=0 again name child signalled=false came='' stop_code=75
    if under_grid_engine; then stop_code=99; fi
    forwarded=false
    if [ -z "${early_signal:-}" ]; then
        "$@" &
        child=$!
        # shellcheck disable=SC2064 # expands the number now
        for name in TERM INT USR1 USR2; do trap "signalled=true came=$name; kill -s $name $child 2>/dev/null" "$name"; done
        [ -z "${early_signal:-}" ] || kill -s "$early_signal" "$child" 2>/dev/null || true # it arrived meanwhile
        wait "$child" || code=$?
    fi
    while $signalled; do # `wait` returns when a trap has run, too
        signalled=false again=0
        wait "$child" || again=$?
        [ "$again" -eq 127 ] || code=$again
    done
    came=${came:-${early_signal:-}}
    if under_grid_engine && [ "$came" = USR1 ] && [ "$code" -eq 138 ]; then # a request to save, before any handler
        run_forwarding "$@"
        return
    fi
    trap - TERM INT USR1 USR2
    [ -n "$came" ] || return "$code"
    forwarded=true
    case ${child:+$code} in
    '' | 138 | 140 | 143) # the signal ended it before it had handlers
        say "stopped by SIG$came before the run began; nothing is lost, the same command starts it"
        return "$stop_code"
        ;;
    esac
    return "$code"
}

# Records signals until run_forwarding, because a scheduler's may arrive early.
note_signals() {
    local name
    early_signal=
    # shellcheck disable=SC2064 # expands the name now
    for name in TERM INT USR1 USR2; do trap "early_signal=$name" "$name"; done
    if under_grid_engine; then trap : USR1; fi # a request to save: there is nothing yet
}

# ---- the time limit ----

# ask_scheduler COMMAND...: prints its output. Tries five times, because a busy scheduler may not answer at once.
ask_scheduler() {
    local try
    for try in 1 2 3 4 5; do
        "$@" 2>/dev/null && return
        [ "$try" -eq 5 ] || sleep 3
    done
    return 1
}

# as_seconds TEXT: prints "1-02:03:04", "02:03:04", "03:04" or "4" in seconds; nothing for other texts.
as_seconds() {
    local days=0 text=$1 part total=0
    case $text in *-*) days=${text%%-*} text=${text#*-} ;; esac
    case $days:$text in *[!0-9:]* | *:) return ;; esac
    while [ -n "$text" ]; do
        part=${text%%:*}
        total=$((total * 60 + 10#$part))
        case $text in *:*) text=${text#*:} ;; *) text= ;; esac
    done
    echo $((total + 86400 * days))
}

seconds_used() { ps -o etimes= -p $$ | tr -d ' '; }

# Prints the seconds until the scheduler's limit; nothing without a scheduler or a limit.
seconds_left() {
    local limit='' used answered=true
    used=$(seconds_used)
    if [ -n "${SLURM_JOB_ID:-}" ]; then
        limit=$(ask_scheduler squeue -h -j "$SLURM_JOB_ID" -o %L) || answered=false
        used=0
    elif [ -n "${PBS_JOBID:-}" ]; then
        limit=${PBS_WALLTIME:-$(ask_scheduler qstat -f "$PBS_JOBID" | sed -n 's/.*Resource_List.walltime = //p')} || answered=false
    elif under_grid_engine; then
        limit=$(ask_scheduler qstat -j "$JOB_ID" | sed -n 's/^hard resource_list:.*h_rt=\([0-9:]*\).*/\1/p') || answered=false
    fi
    $answered || say "the scheduler does not answer a query for the time left; set CAIRN_MAX_TIME to stop before its limit"
    limit=$(as_seconds "$limit")
    [ -z "$limit" ] || echo $((limit - used))
}

# Ends the run a minute before the scheduler's limit, unless the user set CAIRN_MAX_TIME.
obey_time_limit() {
    local left stop
    own_limit=false
    [ -z "${CAIRN_MAX_TIME:-}" ] || return 0
    left=$(seconds_left)
    [ -n "$left" ] || return 0
    if [ "$left" -gt 120 ]; then stop=$((left - 60)); else stop=$((left / 2 + 1)); fi
    export CAIRN_MAX_TIME=${stop}s
    own_limit=true
    say "this job has $left s left; Cairn stops after $stop s, with a checkpoint"
}

# ---- the run ----

# Prints the name of the scheduler's variable with this job's index in its array; nothing outside an array.
array_variable() {
    local name value
    for name in PBS_ARRAY_INDEX PBS_ARRAYID SLURM_ARRAY_TASK_ID SGE_TASK_ID; do
        value=${!name:-undefined}
        if [ "$value" != undefined ]; then echo "$name" && return; fi
    done
}

# read_flags ARGUMENT...: sets `flags` to the words of RUN_FLAGS, then the arguments. Quotes and backslashes in RUN_FLAGS
# work as in a shell (but a backslash within quotes does not), and nothing is expanded. In an array "$" with the name of
# the index's variable becomes the index.
read_flags() {
    local text=${RUN_FLAGS:-} name
    flags=()
    if [ -n "${text//[[:space:]]/}" ]; then
        xargs -r printf '%s\n' <<<"$text" >/dev/null 2>&1 || die 2 "RUN_FLAGS has an unmatched quote: $text"
        mapfile -d '' -t flags < <(xargs -r printf '%s\0' <<<"$text")
    fi
    flags+=("$@")
    name=$(array_variable)
    [ -z "$name" ] || flags=("${flags[@]//\$$name/${!name}}")
}

# run_job ARGUMENT...: runs RUN_SCRIPT of this folder with RUN_FLAGS and the arguments, within the time limit. Sets `code`
# to its exit code, and `forwarded`. Each job of an array has its own results folder, named by index.
run_job() {
    local script=hpcai_scripts/${RUN_SCRIPT:-run_glue_multinode.sh} name
    [ -x "$script" ] || die 2 "RUN_SCRIPT: $script is not a script; give the name of one in hpcai_scripts"
    note_signals
    obey_time_limit
    read_flags "$@"
    name=$(array_variable)
    if [ -n "$name" ]; then
        local -x RESULTS_DIR=${RESULTS_DIR:-$cairn_root/results}/${!name}
        [ -z "${CAIRN_OUTPUT_DIR:-}" ] || local -x CAIRN_OUTPUT_DIR=$CAIRN_OUTPUT_DIR/${!name}
    fi
    code=0
    run_forwarding "$script" "${flags[@]}" || code=$?
}

# Whether another start, perhaps on other hosts, can help: a rank or host was lost (77), or --audit found damaged memory
# (78). Of `code`.
was_fault() { [ "$code" -eq 77 ] || [ "$code" -eq 78 ]; }

# ---- PBS ----

# Prints the job as `qstat -f` shows it, one line per attribute, or nothing.
pbs_job() { ask_scheduler qstat -f "$PBS_JOBID" | sed -e ':join' -e '$!N' -e 's/\n\t//' -e 't join' -e P -e D; }

# pbs_value ATTRIBUTE: prints its value in $job.
pbs_value() { sed -n "s/^ *$1 = //p" <<<"$job" | head -n 1; }

# pbs_resubmission SCRIPT ARGUMENT...: sets `resubmission` to a shell command that submits the same job again, to begin
# after this one, with its current resources, queue, project and name, and with the variables that the run depends on.
# The arguments are those of the submission. Fails if qstat does not answer.
pbs_resubmission() {
    local script=$1 job given name value queue select='' words=() names=() settings=()
    shift
    job=$(pbs_job)
    [ -n "$job" ] || return 1
    given="$(grep '^#PBS' "$script") $(pbs_value Submit_arguments)"
    # Without a given select the server made one from whole-job resources, which the site may refuse.
    if [[ $given == *select=* ]]; then select=$(pbs_value Resource_List.select); fi
    while IFS= read -r name; do
        value=$(pbs_value "Resource_List\\.$name")
        case $name in
        nodect | neednodes) continue ;;
        select | place) [ -n "$select" ] || continue ;;
        *) # With select, qsub refuses sums over its chunks and defaults of the site.
            [ -z "$select" ] || [[ $given =~ ([[:space:],]|-l)$name= ]] || continue
            ;;
        esac
        words+=(-l "$name=$value")
    done < <(sed -n 's/^ *Resource_List\.\([^ ]*\) = .*/\1/p' <<<"$job")
    queue=${PBS_O_QUEUE:-$(pbs_value queue)} # as submitted; a routing queue's destination may take no jobs itself
    [ -z "$queue" ] || words+=(-q "$queue")
    for name in N:Job_Name P:project A:Account_Name W:group_list m:Mail_Points M:Mail_Users k:Keep_Files; do
        value=$(pbs_value "${name#*:}")
        case $name:$value in
        *: | P:*:_pbs_project_default | k:*:n | m:*:a) continue ;;
        W:*) value=group_list=$value ;;
        esac
        words+=("-${name%%:*}" "$value")
    done
    value=$(pbs_value Output_Path)
    [ -z "$value" ] || [[ ${value##*/} =~ \.o[0-9]+(\.[0-9]+|)$ ]] || words+=(-o "$value") # the default has the job's number
    # A job of an array is resubmitted alone, and no job can depend on its end.
    [[ $PBS_JOBID == *\[* ]] || words+=(-W "depend=afterany:$PBS_JOBID")
    for value in "$@"; do # of all PBS only Torque accepts arguments
        value=\'${value//\'/\'\\\'\'}\'
        RUN_FLAGS="${RUN_FLAGS:-} $value"
    done
    for name in BERT_DIR GLUE_DIR RESULTS_DIR RUN_SCRIPT RUN_FLAGS RUN_FOLDER RUN_FAULTS "$(array_variable)" "${!CAIRN_@}"; do
        if [ -z "$name" ] || [ -z "${!name:-}" ] || [ "$name" = CAIRN_JOB_TOKEN ]; then continue; fi # a secret
        settings+=("$name=$(quoted "${!name}")")
        names+=("$name")
    done
    resubmission="cd $(quoted "$PWD") && ${settings[*]} qsub"
    for value in "${words[@]}" -v "$(IFS=, && echo "${names[*]}")" "$script"; do resubmission+=" $(quoted "$value")"; done
}

# quoted WORD: prints it for a shell, with quotes only if needed.
quoted() { if [[ $1 =~ ^[A-Za-z0-9_./:=,@+-]+$ ]]; then printf '%s' "$1"; else printf '%s' "${1@Q}"; fi; }

# Prints the path of the job's script: job.pbs, or a copy of the script that the user submitted, because PBS runs a
# temporary copy of it. The copy requests no array.
pbs_script() {
    local mine=hpcai_scripts/job.pbs folder=$PWD copy given same
    [ -w "$folder" ] || folder=$HOME
    copy=$folder/$PBS_JOBNAME.${PBS_JOBID%%[!0-9]*}.pbs
    given=$(sed '/^#PBS *-J/d' "$0" 2>/dev/null)
    [[ $given == *$'\n#PBS'* ]] || given=$(cat "$mine")
    for same in "$mine" "$folder/$PBS_JOBNAME".*.pbs; do # an earlier job may have left its copy
        if [ "$given" = "$(cat "$same" 2>/dev/null)" ]; then echo "$same" && return; fi
    done
    printf '%s\n' "$given" >"$copy"
    echo "$copy"
}

# pbs_again ARGUMENT...: requeues a job that ended with 75 or by a fault, by qrerun, which few sites allow to users, else
# as a new job. A job without progress (a fault, or 75 within five minutes) is requeued at most ten times.
pbs_again() {
    local refused submitted resubmission
    if $own_limit; then unset CAIRN_MAX_TIME; fi # it holds for this job only, and qsub -V would pass it on
    [ "$code" -eq 75 ] || was_fault || return 0
    if [ "$code" -eq 75 ] && [ "$(seconds_used)" -ge 300 ]; then RUN_FAULTS=0; else RUN_FAULTS=$((${RUN_FAULTS:-0} + 1)); fi
    if [ "$RUN_FAULTS" -gt 10 ]; then
        say "job.pbs: ended with $code; ten starts in a row made no progress, so it is not submitted again"
        return
    fi
    if refused=$(qrerun "$PBS_JOBID" 2>&1); then
        say "job.pbs: ended with $code; qrerun has put it back into the queue"
        return
    fi
    if ! pbs_resubmission "$(pbs_script)" "$@"; then
        say "job.pbs: ended with $code; qrerun refused ($refused), and qstat does not answer. Submit the job again to resume."
        return
    fi
    if submitted=$(bash -c "$resubmission" 2>&1); then
        say "job.pbs: ended with $code; submitted again as $submitted ($refused):"
        say "$resubmission"
    else
        say "job.pbs: ended with $code; qrerun refused ($refused), and so did qsub from this host ($submitted)."
        say "To resume, run on a login node: $resubmission"
    fi
}
