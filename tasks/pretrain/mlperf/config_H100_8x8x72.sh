# shellcheck shell=bash disable=SC2034 # run_mlperf.sh reads it
# 8 hosts of 8 H100, 4608 sequences a step: NVIDIA's settings. Training begins 200000 steps into a warmup of 200330.
nodes=8 ranks_per_node=8 sequences_per_rank=72
flags=(--learning-rate 2.58e-3 --warmup 200330 --warmup-start -200000 --max-steps 700 --adam-beta1 0.6 --adam-beta2 0.7)
