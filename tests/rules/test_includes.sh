#!/usr/bin/env bash
# Who may include whom (docs/design.md, "The rooms"): first that the check finds what is wrong, then the sources.
set -euo pipefail
# shellcheck source=tests/rules/lib.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh" "$@"

rule() { awk -f tests/rules/includes.awk; }

# file:line:text, one allowed and one refused for each kind.
while IFS='|' read -r verdict example; do
    case $verdict in
    yes) [ -z "$(rule <<<"$example")" ] || found "the rule refuses: $example" ;;
    no) [ -n "$(rule <<<"$example")" ] || found "the rule lets pass: $example" ;;
    esac
done <<'END'
yes|src/base/digest.c:1:#include <xxhash.h>
no|src/state/models/import.c:1:#include <xxhash.h>
yes|kernels/cpu/onednn/v3.c:1:#include <dnnl.h>
no|kernels/cpu/linear.c:1:#include <dnnl.h>
no|kernels/ref/linear.c:1:#include <oneapi/dnnl/dnnl.h>
no|kernels/ref/linear.c:1:#include <omp.h>
no|tests/ops/test_linear.c:1:#include <dnnl.h>
yes|tests/ops/test_linear.c:1:#include <cmocka.h>
no|src/train/loop/loop.c:1:#include <cmocka.h>
yes|src/plan/plan.c:1:#include "kernels/op.h"
no|src/plan/plan.c:1:#include "kernels/backend.h"
no|src/plan/plan.c:1:#include "model/model.h"
no|src/plan/plan.c:1:#include <unistd.h>
yes|src/plan/plan.c:1:#include <math.h>
no|src/base/file.c:1:#include "config/config.h"
yes|src/base/file.c:1:#include "base/file.h"
no|src/base/file.c:1:#include "file.h"
no|src/exec/exec.c:1:#include "plan/../train/run/run.h"
no|src/exec/exec.c:1:#include "base/../train/run/run.h"
no|src/model/bert.c:1:#include <exec/exec.h>
no|tests/plan/test_plan.c:1:#include <exec/exec.h>
yes|src/base/file.c:1:#include <sys/stat.h>
no|src/exec/exec.c:1:#include A_HEADER
yes|src/report/html.c:1:#include "faults/excluded.h"
no|src/state/models/import.c:1:#include "faults/excluded.h"
yes|src/model/bert.c:1:#include "plan/plan.h"
no|src/model/bert.c:1:#include "exec/exec.h"
no|src/exec/exec.c:1:#include "model/model.h"
yes|src/exec/exec.c:1:#include "kernels/backend.h"
no|src/exec/exec.c:1:# include "config/config.h"
no|src/state/models/import.c:1:#include "plan/plan.h"
no|src/train/loop/loop.c:1:#include "tasks/glue/glue.h"
no|src/train/loop/loop.c:1:#include "state/checkpoint/checkpoint_internal.h"
no|src/main.c:1:#include "tasks/glue/glue.h"
yes|src/main.c:1:#include "commands/commands.h"
yes|src/commands/commands.c:1:#include "tasks/glue/glue.h"
no|src/train/loop/loop.c:1:#include "commands/commands.h"
yes|tasks/glue/task.c:1:#include "train/job/job.h"
no|tasks/glue/task.c:1:#include "tasks/pretrain/pretrain.h"
yes|tasks/pretrain/wiki/with_expat/page_xml.c:1:#include "tasks/pretrain/wiki/page_xml.h"
no|tasks/pretrain/wiki/with_expat/page_xml.c:1:#include "tasks/glue/glue.h"
yes|tasks/pretrain/wiki/with_expat/page_xml.c:1:#include <expat.h>
no|tasks/pretrain/wiki/wiki.c:1:#include <expat.h>
no|tasks/pretrain/wiki/wiki.c:1:#include <expat.h>
no|src/base/file.c:1:#include <zlib.h>
yes|kernels/cpu/linear.c:1:#include "kernels/cpu/cpu.h"
yes|kernels/cpu/linear.c:1:#include "kernels/op.h"
no|kernels/cpu/linear.c:1:#include "kernels/ref/ref.h"
no|kernels/ref/linear.c:1:#include "plan/plan.h"
no|kernels/cuda/kernel.cuh:1:#    include "tests/cuda_host/cuda_host.h"
no|kernels/cpu/vec.h:1:#include "tests/cuda_host/cuda_host.h"
yes|tests/cuda_host/cuda_host.h:1:#include <cuda_bf16.h>
no|tests/ops/harness.h:1:#include <cuda_bf16.h>
no|kernels/backend.c:1:#include "kernels/cpu/cpu.h"
no|src/newroom/new.c:1:#include "plan/plan.h"
yes|src/comm/mesh/comm.c:1:#include "comm/watch/watch.h"
no|src/comm/mesh/comm.c:1:#include "comm/watch/watch_internal.h"
no|src/exec/exec.c:1:#include "comm/mesh/comm_internal.h"
no|src/state/models/import.c:1:#include "state/checkpoint/checkpoint.h"
yes|src/state/checkpoint/checkpoint_write.c:1:#include "state/models/export.h"
no|src/state/snapshot/snapshot.c:1:#include "state/checkpoint/checkpoint_internal.h"
no|src/state/checkpoint/checkpoint_write.c:1:#include "state/snapshot/snapshot.h"
yes|src/plan/plan.h:1:#include "plan/pipeline/schedule.h"
no|src/plan/pipeline/fill.c:1:#include "plan/plan.h"
no|src/plan/pipeline/fill.c:1:#include <unistd.h>
yes|src/plan/pipeline/fill.c:1:#include <math.h>
no|src/model/bert.c:1:#include "plan/pipeline/fill.h"
yes|src/exec/works.c:1:#include "plan/pipeline/schedule.h"
yes|src/comm/mesh/gloo/gloo.cc:1:#include "comm/mesh/gloo.h"
no|src/comm/meet/peers.c:1:#include "comm/mesh/comm.h"
no|src/comm/new.c:1:#include "comm/mesh/comm.h"
yes|src/exec/exec.h:1:#include "comm/mesh/device.h"
no|src/exec/exec.h:1:#include "comm/meet/rendezvous.h"
yes|src/train/ranks/ranks.h:1:#include "comm/mesh/comm.h"
no|src/train/ranks/ranks.h:1:#include "comm/mesh/comm_internal.h"
no|src/comm/watch/watch.c:1:#include "comm/meet/peers.h"
yes|src/train/loop/loop.c:1:#include "train/keep/saving.h"
no|src/train/loop/loop.c:1:#include "train/run/check.h"
no|src/train/keep/saving.c:1:#include "train/measure/pace.h"
no|src/train/planner/planner.c:1:#include "train/pipelines/pipeline.h"
no|src/train/parts/kfac.c:1:#include "train/ranks/ranks.h"
no|src/train/new.c:1:#include "train/job/job.h"
yes|src/config/docs/man.c:1:#include "config/config.h"
no|src/config/docs/man.c:1:#include "text/text.h"
yes|src/text/text.c:1:#include "config/docs/man.h"
END

# Tables in which config includes train, which includes config; and base a room, which includes base as every room does.
for row in config:train/ base:faults/; do
    said=$(awk -f <(sed "s|allow\\[\"src/${row%:*}\"\\] = \"\"|allow[\"src/${row%:*}\"] = \"${row#*:}\"|" tests/rules/includes.awk) </dev/null)
    grep -q "circle: src/${row%:*} " <<<"$said" || found "the rule lets a circle of rooms pass, $row: $said"
done

project_files | grep -E '\.(c|h|cc|cu|cuh)$' | tr '\n' '\0' |
    xargs -0 grep -nE '^[[:space:]]*#[[:space:]]*include' /dev/null | rule >>"$findings"
conclude "includes are not allowed (tests/rules/includes.awk holds the table)"
