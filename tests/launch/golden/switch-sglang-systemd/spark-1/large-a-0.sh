#!/bin/sh
# large-a: rank 0 of 2, on spark-1. Written by `pointsman plan render`.
exec python3 -m sglang.launch_server \
  --model-path nvidia/GLM-5.3-Flash-NVFP4 \
  --tp-size 2 \
  --ep-size 2 \
  --context-length 131072 \
  --max-running-requests 16 \
  --mem-fraction-static 0.85 \
  --kv-cache-dtype fp8_e4m3 \
  --speculative-algorithm NEXTN \
  --speculative-num-steps 3 \
  --speculative-eagle-topk 1 \
  --speculative-num-draft-tokens 4 \
  --enable-metrics \
  --nnodes 2 \
  --node-rank 0 \
  --dist-init-addr 192.168.100.11:29500 \
  --host 0.0.0.0 \
  --port 8000
