torchrun --nproc_per_node 8 pretrain_gpt.py \
 --num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 --num-attention-heads 32 --group-query-attention --num-query-groups 8 \
 --swiglu --normalization RMSNorm --untie-embeddings-and-output-weights --vocab-size 128256 --max-position-embeddings 8192 \
 --seq-length 8192 --micro-batch-size 1 --global-batch-size=128 --tensor-model-parallel-size 2 --sequence-parallel \
 --bf16 --use-distributed-optimizer --recompute-granularity selective --optimizer adam --hidden-dropout 0.0
