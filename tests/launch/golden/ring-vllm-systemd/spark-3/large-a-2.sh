#!/bin/sh
# large-a: rank 2 of 4, on spark-3. Written by `pointsman plan render`.
exec vllm serve example/GLM-5.3-NVFP4-FP4 \
  --tensor-parallel-size 4 \
  --max-model-len 131072 \
  --max-num-seqs 16 \
  --gpu-memory-utilization 0.85 \
  --kv-cache-dtype fp8 \
  --enable-prefix-caching \
  --speculative-config '{"method":"mtp","num_speculative_tokens":3}' \
  --nnodes 4 \
  --node-rank 2 \
  --master-addr 192.168.1.11 \
  --master-port 29500 \
  --headless
