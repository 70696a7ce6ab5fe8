// The neighbours of config.json, and what else people drop, are called by their name.
#include "core/config/wrong_file.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/config/model_config.h"
#include "tests/base/show_problem.h"

namespace ledger {
namespace {

using namespace std::string_literals;

struct Case {
  const char* name;
  std::string text;
  const char* want;  // Problem::read
};

void PrintTo(const Case& c, std::ostream* out) {
  *out << c.name;
}

class WrongFile : public testing::TestWithParam<Case> {};

TEST_P(WrongFile, IsNamed) {
  const Result<ModelConfig> config = read_model_config(GetParam().text);
  ASSERT_EQ(code_of(config), "wrong_file");
  EXPECT_EQ(config.problem().read, GetParam().want);
}

std::string vocabulary() {
  std::string text = "{\"<s>\":0";
  for (int i = 1; i < 200; ++i)
    text += ",\"token" + std::to_string(i) + "\":" + std::to_string(i);
  return text + "}";
}

INSTANTIATE_TEST_SUITE_P(
    All, WrongFile,
    testing::ValuesIn(std::vector<Case>{
        {"gguf", "GGUF\x03\0\0\0"s, "gguf"},
        {"safetensors", "\x10\x05\0\0\0\0\0\0{\"__metadata__\":{}}"s, "safetensors"},
        {"pytorch_zip", "PK\x03\x04\0\0\x08\x08"s, "zip"},
        {"pickle_protocol_2", "\x80\x02}q\0."s, "pickle"},
        {"pickle_protocol_4", "\x80\x04\x95"s, "pickle"},
        {"gzip", "\x1F\x8B\x08\0"s, "gzip"},
        {"keras", "\x89HDF\r\n\x1A\n\0"s, "hdf5"},
        {"utf16_little_endian", "\xFF\xFE{\0\"\0"s, "utf16_text"},
        {"utf16_big_endian", "\xFE\xFF\0{\0\""s, "utf16_text"},
        {"git_lfs_pointer", "version https://git-lfs.github.com/spec/v1\noid sha256:4d\nsize 1\n", "git_lfs_pointer"},
        {"html_page", "<!DOCTYPE html><html><head>", "html"},
        {"html_after_spaces", "\n  <HTML lang=en>", "html"},
        {"xml", "<?xml version=\"1.0\"?><a/>", "xml"},
        {"yaml_of_axolotl", "base_model: NousResearch/Llama-2-7b-hf\nload_in_4bit: true\n", "yaml"},
        {"yaml_after_comments", "# recipe\n#\n\nmodel:\n  a: 1\n", "yaml"},
        {"yaml_document", "---\nmodel: x\n", "yaml"},
        {"python", "from transformers import LlamaConfig\n", "python"},
        {"shell_script", "#!/bin/bash\ntorchrun train.py\n", "script"},
        {"nothing", "", "empty"},
        {"only_spaces", " \n\t ", "empty"},
        {"only_a_bom", "\xEF\xBB\xBF", "empty"},
        {"huge_tokenizer", "{\"version\":\"1.0\",\"added_tokens\":[],\"x\":\"" + std::string(9u << 20, 'x') + "\"}",
         "tokenizer"},
        {"list", "[{\"idx\":0,\"name\":\"0\"}]", "json_list"},
        {"tokenizer", R"({"version":"1.0","added_tokens":[],"normalizer":null,"model":{"type":"BPE","vocab":{}}})",
         "tokenizer"},
        {"tokenizer_config", R"({"bos_token":"<s>","model_max_length":4096,"tokenizer_class":"LlamaTokenizer"})",
         "tokenizer_config"},
        {"special_tokens_map", R"({"bos_token":"<s>","eos_token":"</s>","unk_token":"<unk>"})", "special_tokens_map"},
        {"generation_config", R"({"_from_model_config":true,"bos_token_id":1,"transformers_version":"4.40.0"})",
         "generation_config"},
        {"generation_config_sampling", R"({"bos_token_id":1,"do_sample":true,"temperature":0.6})", "generation_config"},
        {"preprocessor_config", R"({"image_processor_type":"CLIPImageProcessor","size":{"height":336}})",
         "preprocessor_config"},
        {"processor_config", R"({"processor_class":"LlavaProcessor"})", "processor_config"},
        {"adapter_config", R"({"base_model_name_or_path":"x","peft_type":"LORA","r":16,"target_modules":["q_proj"]})",
         "adapter_config"},
        {"safetensors_index", R"({"metadata":{"total_size":1},"weight_map":{"a":"b"}})", "safetensors_index"},
        {"deepspeed_config", R"({"zero_optimization":{"stage":3},"bf16":{"enabled":true}})", "deepspeed_config"},
        {"deepspeed_without_zero", R"({"train_micro_batch_size_per_gpu":4})", "deepspeed_config"},
        {"training_arguments", R"({"output_dir":"out","per_device_train_batch_size":8,"learning_rate":1e-4})",
         "training_arguments"},
        {"trainer_state", R"({"best_metric":null,"global_step":10,"log_history":[]})", "trainer_state"},
        {"train_results", R"({"epoch":3,"train_loss":1.2,"train_runtime":100})", "train_results"},
        {"diffusers", R"({"_class_name":"X","_diffusers_version":"0.30.0"})", "diffusers_config"},
        {"meta_params", R"({"dim":4096,"n_layers":32,"n_heads":32,"vocab_size":-1})", "mistral_params"},
        {"vocabulary", vocabulary(), "vocabulary"},
        {"measured", R"({"schema_version":"1.0","kind":"measured","environment":{},"peaks":{}})", "measured"},
        {"report", R"({"schema_version":"1.0","kind":"predicted","peaks":{}})", "report"},
        {"recipe", R"({"batch":4,"seq":1024})", "recipe"},
    }),
    [](const auto& test) { return std::string(test.param.name); });

TEST(NotAWrongFile, AConfigIsNeverTakenForAnother) {
  for (const char* text : {R"({"model_type":"llama","eos_token_id":2,"transformers_version":"4.40.0"})",
                           R"({"model_type":"llama","tokenizer_class":"LlamaTokenizer","do_sample":true})"}) {
    EXPECT_EQ(outcome(read_model_config(text)), "ok") << text;
  }
  EXPECT_EQ(wrong_file_by_bytes("{\"a\":1}"), "");
  EXPECT_EQ(wrong_file_by_bytes("\xEF\xBB\xBF{\"a\":1}"), "");
  EXPECT_EQ(wrong_file_by_bytes("{abc: 1}"), "");
}

}  // namespace
}  // namespace ledger
