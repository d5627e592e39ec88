# shellcheck shell=bash disable=SC2034 # run_mlperf.sh reads it
# One host of 8 H100 or H200, 768 sequences a step: NVIDIA's settings, which are those of --preset bert-large-mlperf.
nodes=1 ranks_per_node=8 sequences_per_rank=96
flags=()
