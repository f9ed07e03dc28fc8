#!/bin/sh
# small-b: rank 0 of 1, on spark-4. Written by `pointsman plan render`.
exec trtllm-serve Qwen/Qwen3.8-Flash-Next-NVFP4 \
  --tp_size 1 \
  --max_seq_len 65536 \
  --max_batch_size 16 \
  --kv_cache_free_gpu_memory_fraction 0.7 \
  --host 0.0.0.0 \
  --port 8001
