#!/bin/bash
# Four stages of two blocks each, one device for each stage.
torchrun --nproc-per-node 4 pretrain_gpt.py \
  --tensor-model-parallel-size 1 \
  --pipeline-model-parallel-size 4 \
  --pipeline-model-parallel-layout "Et*2|t*2|t*2|t*2L" \
  --num-layers 8 \
  --micro-batch-size 1 \
  --global-batch-size 32
