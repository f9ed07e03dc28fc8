#!/bin/sh
# small-a: rank 0 of 1, on spark-3. Written by `pointsman plan render`.
exec python3 -m sglang.launch_server \
  --model-path Qwen/Qwen3.8-Flash-Next-NVFP4 \
  --tp-size 1 \
  --context-length 65536 \
  --max-running-requests 16 \
  --mem-fraction-static 0.7 \
  --kv-cache-dtype fp8_e4m3 \
  --enable-metrics \
  --host 0.0.0.0 \
  --port 8001
