#include "core/config/gpu.h"

#include <array>
#include <cstddef>

namespace ledger {
namespace {

constexpr Bytes gib(double value) {
  return static_cast<Bytes>(value * static_cast<double>(kGiB));
}

// Label sizes. NVIDIA's "GB" of memory are GiB of chips: an "80 GB" card reports 81920 MiB without ECC.
constexpr Bytes label(Bytes value) {
  return value * kGiB;
}

// What a PyTorch process holds outside the caching allocator before its first tensor, as small as was seen, and with
// the kernels of a training step loaded, which come lazily (CUDA_MODULE_LOADING=LAZY, PyTorch 1.13 and later) and add
// up to 300 MiB. Older PyTorch loads everything: 0.9 to 1.8 GiB on an A100.
struct Context {
  Bytes low;
  Bytes high;
  const char* source;
};

constexpr Context kDataCentre = {414 * kMiB, (481 + 300) * kMiB,  // A100 and H100 80 GB: 414 MiB; A100 80 GB: 0.47 GiB
                                 "stas00/ml-engineering training/performance"};
constexpr Context kBlackwell = {612 * kMiB, (692 + 300) * kMiB, "B200 out-of-memory logs: 612..692 MiB"};
constexpr Context kLarge = {386 * kMiB, (426 + 300) * kMiB,  // RTX 4090: 386 MiB; RTX 6000 Ada: 426 MiB
                            "unslothai/unsloth-zoo#1053"};
constexpr Context kSmall = {102 * kMiB, (222 + 300) * kMiB, "15.5 GiB cards at first cudaMalloc: 102..222 MiB"};
constexpr Context kOther = {273 * kMiB, 614 * kMiB,  // lazy: 287 047 680 bytes; 0.60 GiB: single-GPU training logs
                            "pytorch/pytorch#86509"};

constexpr Gpu gpu(const char* id, const char* name, Bytes label_gib, double usable_gib, std::uint32_t capability,
                  const Context& context, double tflops, double bandwidth, const char* source) {
  return {.id = id,
          .name = name,
          .label_bytes = label(label_gib),
          .usable_bytes = gib(usable_gib),
          .compute_capability = capability,
          .context_low_bytes = context.low,
          .context_high_bytes = context.high,
          .dense_bf16_tflops = tflops,
          .bandwidth_gb_per_s = bandwidth,
          .source = source,
          .context_source = context.source};
}

// Usable: the smallest total that an error message or log of the card printed under Linux (source; numbers are GitHub
// issues and pull requests), so that a verdict errs on the safe side. Windows prints the full 24.00 and is left out; so
// are cards for which no such line was found. TFLOP/s and GB/s: NVIDIA data sheets and architecture white papers,
// dense; 0 where tensor cores have no bf16 (before compute capability 8.0) or the sheet gives no dense figure.
constexpr std::array kGpus = {
    // id, name, label, usable, capability, context, TFLOP/s, GB/s, source of usable
    gpu("p40-24gb", "NVIDIA Tesla P40 24GB", 24, 22.37, 61, kOther, 0, 346, "neurosim/DNN_NeuroSim_V1.3#28"),
    gpu("p100-16gb", "NVIDIA Tesla P100 16GB", 16, 15.89, 60, kOther, 0, 732, "andimarafioti/florence2-finetuning#17"),
    gpu("gtx1070-8gb", "NVIDIA GeForce GTX 1070 8GB", 8, 7.93, 61, kSmall, 0, 256, "svip-lab/impersonator#19"),
    gpu("v100-16gb", "NVIDIA V100 16GB", 16, 15.77, 70, kOther, 0, 900, "kaito-project/kaito#976"),
    gpu("v100-32gb", "NVIDIA V100 32GB", 32, 31.74, 70, kOther, 0, 900, "haotian-liu/LLaVA#812"),
    gpu("t4-16gb", "NVIDIA T4 16GB", 16, 14.74, 75, kSmall, 0, 320, "huggingface/trl#5207"),
    gpu("gtx1660ti-6gb", "NVIDIA GeForce GTX 1660 Ti 6GB", 6, 5.81, 75, kSmall, 0, 288, "zhou13/lcnn#23"),
    gpu("rtx2060-6gb", "NVIDIA GeForce RTX 2060 6GB", 6, 5.79, 75, kSmall, 0, 336, "facebookresearch/meshrcnn#92"),
    gpu("rtx2070s-8gb", "NVIDIA GeForce RTX 2070 Super 8GB", 8, 7.79, 75, kSmall, 0, 448, "csxmli2016/DFDNet#39"),
    gpu("rtx2080ti-11gb", "NVIDIA GeForce RTX 2080 Ti 11GB", 11, 10.75, 75, kSmall, 0, 616, "stochasticai/xTuring#140"),
    gpu("rtx8000-48gb", "NVIDIA Quadro RTX 8000 48GB", 48, 47.46, 75, kOther, 0, 672, "Victarry/stable-dreambooth#8"),
    gpu("rtx3060-12gb", "NVIDIA GeForce RTX 3060 12GB", 12, 11.75, 86, kSmall, 0, 360, "Kunhao-Liu/StyleGaussian#12"),
    gpu("rtx3070-8gb", "NVIDIA GeForce RTX 3070 8GB", 8, 7.76, 86, kSmall, 40.6, 448, "sshan-zhao/GASDA#19"),
    gpu("rtx3080-10gb", "NVIDIA GeForce RTX 3080 10GB", 10, 9.78, 86, kSmall, 59.5, 760, "zai-org/CogVideo#34"),
    gpu("rtx3090-24gb", "NVIDIA GeForce RTX 3090 24GB", 24, 23.68, 86, kLarge, 71, 936, "hpcaitech/ColossalAI#3502"),
    gpu("a4000-16gb", "NVIDIA RTX A4000 16GB", 16, 15.61, 86, kSmall, 76.7, 448, "DengKaiCQ/VGGT-Long#6"),
    gpu("a5000-24gb", "NVIDIA RTX A5000 24GB", 24, 23.68, 86, kLarge, 111.1, 768, "zai-org/GLM-4#730"),
    // The same card with and without ECC, which takes a sixteenth.
    gpu("a6000-48gb", "NVIDIA RTX A6000 48GB", 48, 47.50, 86, kLarge, 154.8, 768, "modelscope/ms-swift#2044"),
    gpu("a6000-48gb-ecc", "NVIDIA RTX A6000 48GB, ECC on", 48, 44.55, 86, kLarge, 154.8, 768,
        "modelscope/ms-swift#2753"),
    gpu("a10-24gb", "NVIDIA A10 24GB", 24, 21.99, 86, kOther, 125, 600, "zai-org/CogVLM#236"),
    gpu("a10g-24gb", "NVIDIA A10G 24GB", 24, 21.98, 86, kOther, 70, 600, "AWS g5.12xlarge log; h2oai/h2ogpt#48: 22.20"),
    gpu("a30-24gb", "NVIDIA A30 24GB", 24, 23.53, 80, kOther, 165, 933, "google/RB-Modulation#5"),
    gpu("a100-40gb", "NVIDIA A100 40GB", 40, 39.38, 80, kDataCentre, 312, 1555,
        "A100 40GB logs; OpenRLHF/OpenRLHF#398: 39.39"),
    gpu("a100-80gb", "NVIDIA A100 80GB", 80, 79.10, 80, kDataCentre, 312, 2039, "lm-sys/FastChat#2701"),
    gpu("a800-80gb", "NVIDIA A800 80GB", 80, 79.35, 80, kDataCentre, 312, 1935, "hiyouga/LLaMA-Factory#1158"),
    gpu("l4-24gb", "NVIDIA L4 24GB", 24, 22.05, 89, kOther, 121, 300, "instructlab/instructlab#2666"),
    gpu("l40-48gb", "NVIDIA L40 48GB", 48, 44.40, 89, kLarge, 181.05, 864, "QwenLM/Qwen3-VL#2097"),
    gpu("l40s-48gb", "NVIDIA L40S 48GB", 48, 44.39, 89, kLarge, 362.05, 864,
        "AWS g6e.24xlarge log; stepfun-ai/Step-Video-T2V#8: 44.42"),
    gpu("rtx6000-ada-48gb", "NVIDIA RTX 6000 Ada 48GB", 48, 44.43, 89, kLarge, 364.2, 960, "DINGYANB/MTVCrafter#21"),
    gpu("rtx4060-laptop-8gb", "NVIDIA GeForce RTX 4060 Laptop 8GB", 8, 7.63, 89, kSmall, 0, 256,
        "robbyant-research/MagicQuill#126"),
    gpu("rtx4090-24gb", "NVIDIA GeForce RTX 4090 24GB", 24, 23.52, 89, kLarge, 165.2, 1008,
        "Soul-AILab/SoulX-FlashTalk#5"),
    gpu("rtx5060ti-16gb", "NVIDIA GeForce RTX 5060 Ti 16GB", 16, 15.44, 120, kSmall, 0, 448, "Luce-Org/lucebox#407"),
    gpu("rtx5090-32gb", "NVIDIA GeForce RTX 5090 32GB", 32, 31.36, 120, kLarge, 209.5, 1792,
        "TrajectoryCrafter/TrajectoryCrafter#20"),
    gpu("rtx-pro-6000-96gb", "NVIDIA RTX PRO 6000 Blackwell 96GB", 96, 94.97, 120, kLarge, 0, 1792, "antirez/ds4#431"),
    gpu("h20-96gb", "NVIDIA H20 96GB", 96, 95.00, 90, kDataCentre, 148, 4000, "modelscope/DiffSynth-Studio#1238"),
    gpu("h100-80gb", "NVIDIA H100 80GB", 80, 79.10, 90, kDataCentre, 989.4, 3350, "huggingface/trl#3172"),
    gpu("h100-nvl-94gb", "NVIDIA H100 NVL 94GB", 94, 93.00, 90, kDataCentre, 835.5, 3900, "ali-vilab/VACE#56"),
    gpu("h200-141gb", "NVIDIA H200 141GB", 141, 139.72, 90, kDataCentre, 989.4, 4800, "H200 logs: 139.72..139.81"),
    gpu("b200-180gb", "NVIDIA B200 180GB", 180, 178.34, 100, kBlackwell, 2250, 7700, "B200 logs: 178.34..178.35"),
};

constexpr std::array<const char*, kGpus.size()> ids_of_rows() {
  std::array<const char*, kGpus.size()> ids{};
  for (std::size_t i = 0; i < kGpus.size(); ++i)
    ids[i] = kGpus[i].id;
  return ids;
}

constexpr std::array<const char*, kGpus.size()> kIds = ids_of_rows();

}  // namespace

std::span<const Gpu> gpus() {
  return kGpus;
}

std::span<const char* const> gpu_ids() {
  return kIds;
}

const Gpu* find_gpu(std::string_view id) {
  for (const Gpu& card : kGpus) {
    if (id == card.id) return &card;
  }
  return nullptr;
}

Bytes cublas_workspace_bytes(const Gpu& card) {
  constexpr Bytes kBeforeHopper = 2 * 4096 * kKiB + 8 * 16 * kKiB;  // ":4096:2:16:8": sizes in KiB, each with its count
  return card.compute_capability >= 90 ? 32 * kMiB : kBeforeHopper;
}

}  // namespace ledger
