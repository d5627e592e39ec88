# shellcheck shell=bash disable=SC2034 # run_mlperf.sh reads it
# One host of 8 A100 of 80 GB, 448 sequences a step: the settings of the submissions for that system.
nodes=1 ranks_per_node=8 sequences_per_rank=56
flags=(--learning-rate 4.25e-4 --max-steps 6700 --adam-beta1 0.9 --adam-beta2 0.999 --weight-decay 0.01)
