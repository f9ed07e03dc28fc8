#!/bin/sh
# classifier-b: rank 0 of 1, on spark-3. Written by `pointsman plan render`.
exec python3 -m sglang.launch_server \
  --model-path openbmb/MiniCPM5-2B \
  --tp-size 1 \
  --context-length 8192 \
  --max-running-requests 16 \
  --mem-fraction-static 0.12 \
  --enable-metrics \
  --host 0.0.0.0 \
  --port 8002
