#!/bin/sh
# small-b: rank 0 of 1, on spark-4. Written by `pointsman plan render`.
exec vllm serve Qwen/Qwen3.8-Flash-Next-NVFP4 \
  --tensor-parallel-size 1 \
  --max-model-len 65536 \
  --max-num-seqs 16 \
  --gpu-memory-utilization 0.7 \
  --kv-cache-dtype fp8 \
  --enable-prefix-caching \
  --host 0.0.0.0 \
  --port 8001
