// The program as people and scripts meet it: exit codes, one sentence on stderr, and nothing but JSON on stdout when
// asked.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "core/api.h"
#include "program.h"
#include "tests/answer/json_path.h"

namespace ledger {
namespace {

namespace fs = std::filesystem;

constexpr const char* kTiny =
    R"({"model_type":"llama","hidden_size":32,"intermediate_size":48,"num_attention_heads":4,"num_key_value_heads":2,)"
    R"("vocab_size":61,"num_hidden_layers":2})";

class Cli : public InAFolder {
 protected:
  Cli() : InAFolder("probe_cli_") { write("tiny.json", kTiny); }

  // Runs the program in the folder; `arguments` as a shell would read them.
  Outcome probe(const std::string& arguments) const { return shell("'" PROBE_BINARY "' " + arguments); }
};

// One line, and it is ours.
void expect_one_sentence(const std::string& text) {
  EXPECT_TRUE(text.starts_with("probe: ")) << text;
  EXPECT_TRUE(text.ends_with(".\n") || text.ends_with("?\n")) << text;
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1) << text;
}

struct Bad {
  const char* name;
  const char* file;  // cfg.json's text, or nullptr for the good one
  const char* arguments;
  const char* says;
};

void PrintTo(const Bad& bad, std::ostream* out) {
  *out << bad.name;
}

class BadInput : public Cli, public testing::WithParamInterface<Bad> {};

TEST_P(BadInput, ExitsWithTwoAndSaysWhy) {
  write("cfg.json", GetParam().file == nullptr ? kTiny : GetParam().file);
  write("list.json", "[1, 2]");
  const Outcome outcome = probe(GetParam().arguments);
  EXPECT_EQ(outcome.code, 2);
  EXPECT_EQ(outcome.out, "");
  EXPECT_NE(outcome.err.find(GetParam().says), std::string::npos) << outcome.err;
  expect_one_sentence(outcome.err);
}

#define LLAMA(rest) R"({"model_type":"llama",)" rest "}"

const Bad kFiles[] = {
    {"no_model", nullptr, "--dry-run", "--model is missing"},
    {"missing_file", nullptr, "--dry-run --model nowhere.json", "cannot read 'nowhere.json': No such file"},
    {"folder", nullptr, "--dry-run --model .", "'.' is a folder. Name the config.json in it."},
    {"empty", "", "--dry-run --model cfg.json", "this is an empty file, not a model's config.json."},
    {"cut_short", R"({"model_type": "llama", "hidden_size":)", "--dry-run --model cfg.json", "Is the file cut short"},
    {"python_literal", R"({"model_type": None})", "--dry-run --model cfg.json", "not valid JSON at 1:16"},
    {"list", "[1]", "--dry-run --model cfg.json", "this is a JSON list, not a model's config.json."},
    {"tokenizer", R"({"tokenizer_class":"LlamaTokenizer"})", "--dry-run --model cfg.json",
     "a tokenizer_config file, not a model's config.json"},
    {"unknown_family", R"({"model_type":"gpt17"})", "--dry-run --model cfg.json",
     "\"gpt17\" is not known yet; known are"},
    {"negative_size", LLAMA(R"("hidden_size":-64)"), "--dry-run --model cfg.json",
     "hidden_size: -64 is out of range; expected 1..1048576."},
    {"absurd_size", LLAMA(R"("num_hidden_layers":1e30)"), "--dry-run --model cfg.json",
     "num_hidden_layers: 1e+30 is out of range; expected 1..4096."},
    {"text_for_a_size", LLAMA(R"("hidden_size":"big")"), "--dry-run --model cfg.json",
     "hidden_size: expected integer, found \"big\"."},
    {"recipe_missing", nullptr, "--dry-run --model cfg.json --recipe nowhere.json", "cannot read 'nowhere.json'"},
    {"recipe_is_a_list", nullptr, "--dry-run --model cfg.json --recipe list.json",
     "list.json: expected a JSON object at the top, found array."},
};

const Bad kFlags[] = {
    {"unknown_flag", nullptr, "--dry-run --model cfg.json --seqq 4", "unknown argument '--seqq'. Did you mean --seq?"},
    {"unknown_flag_with_value", nullptr, "--dry-run --model cfg.json --bacth=4", "Did you mean --batch?"},
    {"stray_word", nullptr, "--dry-run --model cfg.json extra", "unknown argument 'extra'."},
    {"bad_choice", nullptr, "--dry-run --model cfg.json --method lorra",
     "--method: \"lorra\" is not one of full|lora|qlora. Did you mean lora?"},
    {"negative_number", nullptr, "--dry-run --model cfg.json --seq -4", "--seq: -4 is out of range; expected 1.."},
    {"absurd_number", nullptr, "--dry-run --model cfg.json --batch 99999999999999999999999", "--batch: "},
    {"text_for_a_number", nullptr, "--dry-run --model cfg.json --grad-accum many",
     "--grad-accum: expected integer, found \"many\"."},
    {"bad_memory_limit", nullptr, "--dry-run --model cfg.json --mem-limit 24apples", "--mem-limit: "},
    {"unknown_gpu", nullptr, "--dry-run --model cfg.json --gpu h100-80g", "Did you mean h100-80gb?"},
    {"unknown_device", nullptr, "--model cfg.json --device tpu", "--device: 'tpu' is not one of host|cuda."},
    {"no_steps", nullptr, "--model cfg.json --device host --steps 0", "--steps: Value 0 not in range 1 to 64."},
    {"bad_check", nullptr, "--model cfg.json --device host --check much",
     "--check: 'much' is not a percentage such as 5%."},
    {"bad_budget", nullptr, "--model cfg.json --device host --budget soon",
     "--budget: 'soon' is not a time such as 90s or 5m."},
    {"no_time", nullptr, "--model cfg.json --device host --timeout 0s", "--timeout: '0s' is not a time"},
    {"flag_without_value", nullptr, "--dry-run --model", "--model"},
    {"course_cannot_run", nullptr, "--model cfg.json --device host --stack course", "Use --dry-run."},
    {"not_computed", nullptr, "--dry-run --model cfg.json --compile",
     "compile = true cannot be computed: torch.compile"},
    {"too_large_for_this_machine", nullptr, "--model cfg.json --device host --batch 65536 --seq 16777216",
     "this machine has"},
};

std::string name_of(const testing::TestParamInfo<Bad>& info) {
  return info.param.name;
}

INSTANTIATE_TEST_SUITE_P(Files, BadInput, testing::ValuesIn(kFiles), name_of);
INSTANTIATE_TEST_SUITE_P(Flags, BadInput, testing::ValuesIn(kFlags), name_of);

TEST_F(Cli, AHugeFileIsRefusedBeforeItIsRead) {
  write("huge.json", "");
  fs::resize_file(folder / "huge.json", 50u << 20);
  const Outcome outcome = probe("--dry-run --model huge.json");
  EXPECT_EQ(outcome.code, 2);
  EXPECT_NE(outcome.err.find("'huge.json' is larger than 8 MiB."), std::string::npos) << outcome.err;
  expect_one_sentence(outcome.err);
}

TEST_F(Cli, PredictsWithoutAGpu) {
  const Outcome outcome = probe("--dry-run --model tiny.json --seq 16");
  EXPECT_EQ(outcome.code, 0);
  EXPECT_EQ(outcome.err, "");
  EXPECT_NE(outcome.out.find("GiB"), std::string::npos) << "a table for people";
}

TEST_F(Cli, JsonOnStdoutIsJsonAlone) {
  const Outcome outcome = probe("--dry-run --model tiny.json --seq 16 --json -");
  EXPECT_EQ(outcome.code, 0);
  EXPECT_EQ(outcome.err, "");
  const Json report = parsed(outcome.out);
  EXPECT_EQ(text(report, "kind"), "predicted");
  EXPECT_EQ(number(report, "recipe.seq"), 16u);
}

TEST_F(Cli, JsonInAFileLeavesTheTableAndNoPartialFile) {
  const Outcome outcome = probe("--dry-run --model tiny.json --json result.json");
  EXPECT_EQ(outcome.code, 0);
  EXPECT_NE(outcome.out, "");
  EXPECT_EQ(text(parsed(contents(folder / "result.json")), "kind"), "predicted");
  for (const auto& entry : fs::directory_iterator(folder)) {
    EXPECT_EQ(entry.path().filename().string().find(".part"), std::string::npos);
  }
}

TEST_F(Cli, AnUnwritableResultIsAnError) {
  const Outcome outcome = probe("--dry-run --model tiny.json --json no/such/folder/result.json");
  EXPECT_EQ(outcome.code, 2);
  expect_one_sentence(outcome.err);
}

TEST_F(Cli, FlagsGoOverTheRecipeFile) {
  write("recipe.json", R"({"batch": 3, "seq": 16})");
  const Json report = parsed(probe("--dry-run --model tiny.json --recipe recipe.json --seq 8 --json -").out);
  EXPECT_EQ(number(report, "recipe.batch"), 3u);
  EXPECT_EQ(number(report, "recipe.seq"), 8u);
}

TEST_F(Cli, MeasuresOnTheHostAndAgreesWithItsPrediction) {
  const Outcome outcome = probe("--device host --model tiny.json --batch 2 --seq 12 --steps 2 --check 0% --json -");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  const Json measured = parsed(outcome.out);
  EXPECT_EQ(text(measured, "status"), "ok");
  EXPECT_EQ(at(measured, "prediction.events_identical").as_bool(), true);
  EXPECT_EQ(at(measured, "steps").items().size(), 2u);
  EXPECT_EQ(number(measured, "peaks.allocated_bytes"), number(measured, "prediction.peaks.allocated_bytes"));
}

TEST_F(Cli, GeneratesOnTheHostAndAgreesWithItsPrediction) {
  const Outcome run =
      probe("--model tiny.json --device host --task generate --seq 12 --new-tokens 5 --check 0% --json out.json");
  EXPECT_EQ(run.code, 0) << run.err;
  const Json measured = parsed(contents(folder / "out.json"));
  EXPECT_EQ(at(measured, "phases").items().size(), 6u);
  EXPECT_EQ(text(measured, "phases.5.name"), "decode4");
  EXPECT_TRUE(at(measured, "prediction.events_identical").as_bool().value_or(false));
  EXPECT_EQ(at(measured, "steps").items().size(), 0u);
}

TEST_F(Cli, WhatTheHostCannotGenerateItRefusesByName) {
  const Outcome many = probe("--model tiny.json --device host --task generate --new-tokens 500");
  EXPECT_EQ(many.code, 2);
  EXPECT_NE(many.err.find("at most 9 with --new-tokens"), std::string::npos) << many.err;
  const Outcome int8 = probe("--model tiny.json --device host --task generate --new-tokens 2 --weights int8");
  EXPECT_EQ(int8.code, 2);
  EXPECT_NE(int8.err.find("no kernel for int8_linear"), std::string::npos) << int8.err;
}

TEST_F(Cli, ABudgetThatIsSpentEndsWithFiveAndTheStepsThatWereDone) {
  const Outcome outcome = probe("--device host --model tiny.json --seq 12 --steps 9 --budget 0.000001s --json -");
  EXPECT_EQ(outcome.code, 5);
  expect_one_sentence(outcome.err);
  EXPECT_NE(outcome.err.find("stopped by --budget; the file holds"), std::string::npos) << outcome.err;
  const Json measured = parsed(outcome.out);
  EXPECT_EQ(text(measured, "status"), "timeout");
  EXPECT_EQ(at(measured, "steps").items().size(), 1u);
  EXPECT_FALSE(at(measured, "steps.0.loss").is_null());
  EXPECT_EQ(text(measured, "phases.4.name"), "step1.zero_grad");
  EXPECT_EQ(at(measured, "phases").items().size(), 5u);
  EXPECT_EQ(probe("--device host --model tiny.json --seq 12 --budget 1h --timeout 60m --check 0%").code, 0);
}

TEST_F(Cli, ATimeoutEndsWithFiveAndWhatWasMeasured) {
  const Outcome outcome = probe("--device host --model tiny.json --seq 12 --steps 64 --timeout 1e-6s --json -");
  EXPECT_EQ(outcome.code, 5);
  expect_one_sentence(outcome.err);
  EXPECT_NE(outcome.err.find("stopped by --timeout; the file holds"), std::string::npos) << outcome.err;
  const Json measured = parsed(outcome.out);
  EXPECT_EQ(text(measured, "status"), "timeout");
  EXPECT_EQ(at(measured, "prediction.events_identical").as_bool(), false);
  for (const char* key : {"model", "recipe", "options", "peaks", "phases", "at_peak", "steps", "prediction"})
    EXPECT_FALSE(at(measured, key).is_null()) << key;
}

// Half precision on two tokens: the scaled gradients overflow, and the step makes the weights infinite.
TEST_F(Cli, ACheckThatFailsEndsWithFourAndTheFile) {
  const std::string arguments = "--device host --model tiny.json --seq 2 --precision amp-fp16 --json -";
  EXPECT_EQ(probe(arguments).code, 0) << "nobody asked";
  const Outcome outcome = probe(arguments + " --check 5%");
  EXPECT_EQ(outcome.code, 4);
  expect_one_sentence(outcome.err);
  EXPECT_NE(outcome.err.find("the loss is not a finite number."), std::string::npos) << outcome.err;
  EXPECT_EQ(text(parsed(outcome.out), "status"), "ok");
}

// A loaded machine may take its time to start: the signal is sent once it is caught (bit 14 of the mask).
TEST_F(Cli, AnInterruptedRunKeepsWhatWasMeasured) {
  const Outcome outcome =
      shell("{ '" PROBE_BINARY
            "' --device host --model tiny.json --batch 64 --seq 64 --steps 64 --json out.json & "
            "pid=$!; for i in $(seq 400); do m=$(sed -n 's/^SigCgt:[[:space:]]*//p' /proc/$pid/status); "
            "[ $((0x${m:-0} & 0x4000)) -ne 0 ] && break; sleep 0.05; done; "
            "sleep 0.2; kill -TERM $pid; wait $pid; }");
  EXPECT_EQ(outcome.code, 128 + 15) << outcome.err;
  EXPECT_EQ(text(parsed(contents(folder / "out.json")), "status"), "interrupted");
}

TEST_F(Cli, OutOfMemoryIsAResultThatNamesTheTensor) {
  const Outcome outcome = probe("--device host --model tiny.json --seq 12 --mem-limit 1MiB --json -");
  EXPECT_EQ(outcome.code, 3);
  expect_one_sentence(outcome.err);
  EXPECT_NE(outcome.err.find("out of memory in load, model.embed_tokens.weight"), std::string::npos) << outcome.err;
  const Json measured = parsed(outcome.out);
  EXPECT_EQ(text(measured, "status"), "oom");
  EXPECT_EQ(text(measured, "error.kind"), "out_of_memory");
  EXPECT_EQ(text(measured, "error.name"), "model.embed_tokens.weight");
  EXPECT_EQ(text(measured, "error.phase"), "load");
  EXPECT_EQ(number(measured, "error.requested_bytes"), 2u * 61 * 32);
  for (const char* key : {"model", "recipe", "options", "peaks", "phases", "at_peak", "steps", "prediction"}) {
    EXPECT_FALSE(at(measured, key).is_null()) << key;
  }
}

TEST_F(Cli, OutOfMemoryLaterNamesThePhase) {
  const Outcome outcome = probe("--device host --model tiny.json --seq 12 --mem-limit 20MiB --json -");
  EXPECT_EQ(outcome.code, 3);
  EXPECT_EQ(text(parsed(outcome.out), "error.phase"), "step1.forward");  // the first workspace takes 32 MiB
}

TEST_F(Cli, ADryRunThatDoesNotFitIsAnAnswer) {
  const Outcome outcome = probe("--dry-run --model tiny.json --mem-limit 1GiB --batch 64 --seq 8192 --json -");
  EXPECT_EQ(outcome.code, 0);
  EXPECT_EQ(text(parsed(outcome.out), "verdict.answer"), "does_not_fit");
}

TEST_F(Cli, WithoutADriverThereIsNoGpu) {
  if (void* driver = dlopen("libcuda.so.1", RTLD_LAZY)) {
    dlclose(driver);
    GTEST_SKIP() << "this machine has an NVIDIA driver";
  }
  for (const char* arguments : {"--model tiny.json", "--model tiny.json --device cuda --json -"}) {
    const Outcome outcome = probe(arguments);
    EXPECT_EQ(outcome.code, 69);
    EXPECT_EQ(outcome.out, "");
    EXPECT_NE(outcome.err.find("no NVIDIA driver was found"), std::string::npos) << outcome.err;
    EXPECT_NE(outcome.err.find("--dry-run"), std::string::npos) << "says what to do instead";
    EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1);
  }
}

TEST_F(Cli, HelpVersionAndCatalogueNeedNothing) {
  EXPECT_EQ(probe("--version").out, "probe " + std::string(version()) + "\n");
  const Outcome help = probe("--help");
  EXPECT_EQ(help.code, 0);
  for (const char* flag :
       {"--model", "--dry-run", "--json", "--mem-limit", "--grad-accum", "--checkpointing", "--explain-oom"}) {
    EXPECT_NE(help.out.find(flag), std::string::npos) << flag;
  }
  const Outcome gpus = probe("--list-gpus");
  EXPECT_EQ(gpus.code, 0);
  EXPECT_NE(gpus.out.find("h100-80gb"), std::string::npos);
  const Outcome models = probe("--list-models");
  EXPECT_EQ(models.code, 0);
  EXPECT_NE(models.out.find("meta-llama/Meta-Llama-3-8B"), std::string::npos);
}

TEST_F(Cli, APublishedModelIsKnownByItsName) {
  const Outcome named = probe("--dry-run --model llama-3.2-1b --seq 128 --json -");
  EXPECT_EQ(named.code, 0) << named.err;
  EXPECT_EQ(number(parsed(named.out), "model.params"), 1235814400u);
  const Outcome wrong = probe("--dry-run --model llama-3.2-1c");
  EXPECT_EQ(wrong.code, 2);
  EXPECT_NE(wrong.err.find("did you mean llama-3.2-1b?"), std::string::npos) << wrong.err;
  write("llama-3.2-1b", "[]");  // a file of that name is what was meant
  EXPECT_EQ(probe("--dry-run --model llama-3.2-1b").code, 2);
}

TEST_F(Cli, ErrorsAreExplained) {
  write("log.txt",
        "loss.backward()\nCUDA out of memory. Tried to allocate 64.00 MiB (GPU 1; 8.00 GiB total capacity; 7.00 GiB "
        "already allocated; "
        "10.00 MiB free; 7.50 GiB reserved in total by PyTorch)\n");
  const Outcome text = probe("--explain-oom log.txt");
  EXPECT_EQ(text.code, 0) << text.err;
  for (const char* part : {"Stage: backward", "64.00 MiB", "| loss.backward()", "What to do"})
    EXPECT_NE(text.out.find(part), std::string::npos) << part;
  const Outcome json = probe("--explain-oom log.txt --json - --model tiny.json --seq 12");
  EXPECT_EQ(json.code, 0) << json.err;
  const Json document = parsed(json.out);
  EXPECT_EQ(number(document, "messages.0.capacity_bytes"), 8ull << 30);
  EXPECT_EQ(ledger::text(document, "prediction.conclusions.0"), "prediction_fits");
}

TEST_F(Cli, WhatCannotBeExplainedIsSaid) {
  EXPECT_EQ(probe("--explain-oom missing.txt").code, 2);
  const Outcome nothing = probe("--explain-oom - --json -");
  EXPECT_EQ(nothing.code, 0);
  EXPECT_TRUE(at(parsed(nothing.out), "messages").items().empty());
}

TEST_F(Cli, NothingOfThisMachineStandsInAMeasuredFile) {
  char host[256] = "";
  gethostname(host, sizeof host - 1);
  const std::string out = probe("--device host --model tiny.json --seq 12 --json -").out;
  EXPECT_EQ(out.find(folder.string()), std::string::npos);
  EXPECT_EQ(out.find("tiny.json"), std::string::npos);
  if (std::string_view(host).size() > 3) {
    EXPECT_EQ(out.find(host), std::string::npos);
  }
}

}  // namespace
}  // namespace ledger
