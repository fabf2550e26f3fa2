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
