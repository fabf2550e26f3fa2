# gpt on two-servers for Megatron-LM: 4 processes, rank = pipeline rank * 2 + replica
# ranks 0 to 1: node0:0 node0:1
# ranks 2 to 3: node1:0 node1:1
PIPELINE_ARGS=(
  --tensor-model-parallel-size 1
  --pipeline-model-parallel-size 2
  --pipeline-model-parallel-layout "Et*4|t*4L"
  --num-layers 8
  --micro-batch-size 1
  --global-batch-size 32
  --overlap-grad-reduce
)
# OTHER_ARGS are what a plan does not decide, of model, data and optimizer.
# To start it on node0 and 1 more, with the number of each from 0 in NODE_RANK and the address of node0 in MASTER_ADDR:
#   torchrun --nnodes 2 --node-rank "$NODE_RANK" --master-addr "$MASTER_ADDR" --nproc-per-node 2 \
#     pretrain_gpt.py "${PIPELINE_ARGS[@]}" "${OTHER_ARGS[@]}"
