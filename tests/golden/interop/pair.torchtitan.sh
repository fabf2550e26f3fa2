torchrun --nproc-per-node 2 -m torchtitan.train \
  --parallelism.pipeline_parallel_degree 2 \
  --parallelism.data_parallel_replicate_degree 1 \
  --parallelism.pipeline_parallel_schedule_csv schedule.csv \
  --parallelism.module_fqns_per_model_part '[["embedding"], ["block.0"], ["block.1"], ["output"]]'
