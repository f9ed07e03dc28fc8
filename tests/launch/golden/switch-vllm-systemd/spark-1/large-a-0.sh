#!/bin/sh
# large-a: rank 0 of 2, on spark-1. Written by `pointsman plan render`.
exec vllm serve nvidia/GLM-5.3-Flash-NVFP4 \
  --tensor-parallel-size 2 \
  --enable-expert-parallel \
  --max-model-len 131072 \
  --max-num-seqs 16 \
  --gpu-memory-utilization 0.85 \
  --kv-cache-dtype fp8 \
  --enable-prefix-caching \
  --speculative-config '{"method":"mtp","num_speculative_tokens":3}' \
  --nnodes 2 \
  --node-rank 0 \
  --master-addr 192.168.100.11 \
  --master-port 29500 \
  --host 0.0.0.0 \
  --port 8000
