#!/bin/sh
# large-a: rank 0 of 2, on spark-1. Written by `pointsman plan render`.
exec mpirun \
  --hostfile /etc/pointsman/engines/large-a-0.hosts \
  -np 2 \
  -x NCCL_SOCKET_IFNAME \
  -x GLOO_SOCKET_IFNAME \
  -x TP_SOCKET_IFNAME \
  -x UCX_NET_DEVICES \
  -x OMPI_MCA_btl_tcp_if_include \
  -x NCCL_IGNORE_CPU_AFFINITY \
  -x NCCL_IB_DISABLE \
  -x NCCL_IB_HCA \
  -x NCCL_IB_GID_INDEX \
  trtllm-llmapi-launch \
  trtllm-serve nvidia/GLM-5.3-Flash-NVFP4 \
  --tp_size 2 \
  --ep_size 2 \
  --max_seq_len 131072 \
  --max_batch_size 16 \
  --kv_cache_free_gpu_memory_fraction 0.85 \
  --host 0.0.0.0 \
  --port 8000
