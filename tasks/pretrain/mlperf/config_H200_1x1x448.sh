# shellcheck shell=bash disable=SC2034 # run_mlperf.sh reads it
# One H200, 448 sequences a step: the settings for 8 A100, whose steps are as large. Nobody has run it.
nodes=1 ranks_per_node=1 sequences_per_rank=448
flags=(--learning-rate 4.25e-4 --max-steps 6700 --adam-beta1 0.9 --adam-beta2 0.999 --weight-decay 0.01)
