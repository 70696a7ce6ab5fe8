accelerate launch --config_file "fsdp.yaml" train.py --model_name_or_path "a/b" --max_length 2048 --bf16 True --output_dir "o" \
--per_device_train_batch_size 2 --gradient_checkpointing True --use_reentrant True --use_flash_attn True --use_peft_lora True --lora_r 8 \
--lora_dropout 0.1 --lora_target_modules q_proj v_proj --use_4bit_quantization True --use_nested_quant True --bnb_4bit_quant_storage_dtype "bfloat16"
