#!/bin/sh
# classifier-a: rank 0 of 1, on spark-4. Written by `pointsman plan render`.
exec trtllm-serve openbmb/MiniCPM5-2B \
  --tp_size 1 \
  --max_seq_len 8192 \
  --max_batch_size 16 \
  --kv_cache_free_gpu_memory_fraction 0.12 \
  --host 0.0.0.0 \
  --port 8002
