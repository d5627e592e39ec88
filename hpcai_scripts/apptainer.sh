#!/usr/bin/env bash
# Runs a script of this folder, or a command of cairn, in the Apptainer container.
set -euo pipefail
# shellcheck source=hpcai_scripts/common.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/common.sh"

usage() {
    cat <<'END'
apptainer.sh SCRIPT.sh|COMMAND [flag]...

Runs hpcai_scripts/SCRIPT.sh, or `cairn COMMAND`, in the container of packaging/apptainer/cairn.def with Apptainer or
Singularity. The first call builds the image. Home, current folder, BERT_DIR, GLUE_DIR and RESULTS_DIR have the same
paths inside; other folders: APPTAINER_BIND=/data. Where there is an NVIDIA driver, its GPUs are there, too (--nv).
  CONT         the image (default: cairn.sif in the source folder)
  RESULTS_DIR  as in the scripts (default: results/ in the source folder)

    ./hpcai_scripts/apptainer.sh run_glue.sh --task MNLI --batch-size 384
    ./hpcai_scripts/apptainer.sh plan --model-config bert-large --memory-budget 16GiB
    ./hpcai_scripts/apptainer.sh run_pretraining_multinode.sh --hosts hosts.txt --phase 1 --data-dir phase1/ ...

On several hosts image and folders must have the same paths; the ranks of each host run in a container of their own,
started by ssh. With srun, start the container in each task: srun apptainer run cairn.sif pretrain ...
Exit codes: those of the script or command; 2 without Apptainer.
END
}

# `cairn launch` in the container calls this for each other host: runs a shell command there, in the same container.
if [ "${1:-}" = --on ]; then
    [ $# -eq 3 ] || die 2 "--on needs a host and a shell command"
    read -ra words <<<"$CONT_START"
    exec ssh -o BatchMode=yes "$2" "$(printf '%q ' "${words[@]}" "$CONT" sh -c "$3")"
fi
case ${1:-} in
'' | -h | --help) usage && exit 0 ;;
esac

tool=apptainer
has_program apptainer || tool=singularity
has_program "$tool" || die 2 "neither apptainer nor singularity is installed"
export RESULTS_DIR=${RESULTS_DIR:-$cairn_root/results}
mkdir -p -- "$RESULTS_DIR"

start=("$tool" exec)
if has_program nvidia-smi; then start+=(--nv); fi
for name in RESULTS_DIR BERT_DIR GLUE_DIR; do
    [ -z "${!name:-}" ] || export "$name=$(realpath -- "${!name}")"
    case ${!name:-} in
    '') ;;
    *[[:space:],:]*) die 2 "$name=${!name}: Apptainer takes no folder with a blank, comma or colon in its name" ;;
    *) start+=(--bind "${!name}") ;;
    esac
done
image=$(realpath -m -- "${CONT:-$cairn_root/cairn.sif}")
if [ ! -e "$image" ]; then
    say "building $image"
    (cd -- "$cairn_root" && "$tool" build "$image" packaging/apptainer/cairn.def) >&2 || die 1 "$image could not be built"
fi
inside=/opt/cairn/hpcai_scripts
export CONT=$image CONT_START="${start[*]}" CAIRN_BINARY=/usr/local/bin/cairn
export CAIRN_SSH=${CAIRN_SSH:-"$inside/apptainer.sh --on %h"}
case $1 in
*.sh)
    [ -x "$cairn_root/hpcai_scripts/$1" ] || die 2 "there is no script hpcai_scripts/$1"
    exec "${start[@]}" "$image" "$inside/$1" "${@:2}"
    ;;
*) exec "${start[@]}" "$image" cairn "$@" ;;
esac
