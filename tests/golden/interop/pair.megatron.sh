#!/bin/bash
# Two stages of two replicas.
PIPELINE_ARGS=(
  --tensor-model-parallel-size 1
  --pipeline-model-parallel-size 2
  --pipeline-model-parallel-layout "Et|tL"
  --num-layers=2
  --micro-batch-size 1 --global-batch-size 16
  --recompute-granularity full \
  --recompute-method uniform
)
torchrun --nproc-per-node 4 pretrain.py "${PIPELINE_ARGS[@]}"
