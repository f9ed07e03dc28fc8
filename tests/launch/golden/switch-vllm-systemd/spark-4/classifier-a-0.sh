#!/bin/sh
# classifier-a: rank 0 of 1, on spark-4. Written by `pointsman plan render`.
exec vllm serve openbmb/MiniCPM5-2B \
  --tensor-parallel-size 1 \
  --max-model-len 8192 \
  --max-num-seqs 16 \
  --gpu-memory-utilization 0.12 \
  --enable-prefix-caching \
  --host 0.0.0.0 \
  --port 8002
