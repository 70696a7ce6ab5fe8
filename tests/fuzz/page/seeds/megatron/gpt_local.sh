torchrun --nproc-per-node 8 pretrain_gpt.py --num-layers 12 --hidden-size 512 --num-attention-heads 8 --transformer-impl local \
  --pipeline-model-parallel-size 4 --decoder-first-pipeline-num-layers 2 --decoder-last-pipeline-num-layers 2 \
  --num-virtual-stages-per-pipeline-rank 2 --micro-batch-size 4 --global-batch-size 32 --seq-length 1024 \
  --max-position-embeddings 1024 --cross-entropy-loss-fusion --cross-entropy-fusion-impl native --bf16
