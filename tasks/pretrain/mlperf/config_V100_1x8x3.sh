# shellcheck shell=bash disable=SC2034 # run_mlperf.sh reads it
# One host of 8 V100 of 16 GB, 24 sequences a step: the settings of MLPerf's reference for that system.
nodes=1 ranks_per_node=8 sequences_per_rank=3
flags=(--precision fp16 --learning-rate 1e-4 --warmup 1562 --max-steps 107538 --adam-beta1 0.9 --adam-beta2 0.999 --weight-decay 0.01)
