// trace.h - the training step as a flat list of events: what tensors are born, when they die, what runs in between.
//
// This is the one artefact that everything downstream reads: memory/replay.h plays it through an allocator (with a real
// executor or none), memory/ledger.h groups what is alive at the peak. It knows nothing of models, recipes or GPUs.
//
// Order within an operator: alloc events of its outputs, then its run event, then free events of what died with it.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "core/base/bytes.h"
#include "core/base/dtype.h"
#include "core/trace/mesh.h"
#include "core/trace/ops.h"
#include "core/trace/shape.h"

namespace ledger {

// What a storage is for, as the ledger groups it. A storage may change category once: an activation gradient that
// becomes a parameter's .grad is relabelled `gradients`.
enum class Category : std::uint8_t {
  weights,               // parameters
  master_weights,        // fp32 copies kept by the optimizer
  buffers,               // rotary frequencies and other non-trained state
  gradients,             // parameters' .grad
  optimizer_states,      // moments, step counters
  inputs,                // token ids, labels, positions
  activations,           // born in the forward pass or in a recomputation
  logits,                // born in the output layer or the loss, forward or backward
  kv_cache,              // keys and values of earlier tokens, while generating
  activation_gradients,  // born in the backward pass
  temporaries,           // born in the optimizer step and not kept
  communication,         // buffers of collectives: all-gather outputs, reduce-scatter inputs, buckets
  workspace,             // scratch memory of libraries inside the allocator; not counted in tensor bytes
  count_
};

inline constexpr std::size_t kCategories = static_cast<std::size_t>(Category::count_);
const char* category_name(Category category);

using StorageId = std::uint32_t;
using NameId = std::uint32_t;

struct StorageInfo {
  Bytes bytes = 0;  // numel * element size, before any rounding; 0-byte storages emit no events
  Shape shape;      // of the tensor that created it
  DType dtype = DType::f32;
  Category category = Category::activations;  // at birth
  OpKind op = OpKind::workspace;              // operator that created it
  NameId scope = 0;                           // index into Trace::names, e.g. "model.layers.*.mlp.gate_proj"
  std::int32_t layer = -1;                    // decoder layer number, -1 outside the layers
  bool on_host = false;                       // in host memory: no byte of the GPU's
};

// A strided window on a storage; sizes, strides and offset count elements of dtype.
struct View {
  StorageId storage = 0;
  DType dtype = DType::f32;
  std::uint8_t rank = 0;
  std::array<std::uint64_t, kMaxRank> sizes{};
  std::array<std::int64_t, kMaxRank> strides{};  // 0 where broadcast
  std::uint64_t offset = 0;
};

struct Attr {
  double x = 0;
  std::array<std::int64_t, 2> i{};
};

struct Run {
  OpKind op = OpKind::workspace;
  std::uint8_t inputs = 0;
  std::uint8_t outputs = 0;
  std::uint32_t many = 0;        // number of inputs when there are more than 255 (stack), else 0
  std::uint32_t first_view = 0;  // into Trace::views: the inputs, then the outputs
  Attr attr;
  NameId scope = 0;
  std::int32_t layer = -1;
  RankGroup group = RankGroup::data;  // whom a collective is among; of what is loaded: whose batches differ

  std::uint32_t input_count() const { return many != 0 ? many : inputs; }
};

enum class EventType : std::uint8_t {
  alloc,          // id: storage
  free,           // id: storage
  run,            // id: running number of the operator; index into Trace::runs when the trace has operands
  label,          // id: storage; it is `category` from here on
  mark,           // id: index into Trace::phases; the phase begins here
  empty_cache,    // torch.cuda.empty_cache(): segments without a live block go back to the driver
  alloc_on_host,  // id: storage, on_host; the GPU's allocator hears of neither
  free_on_host,
};

struct Event {
  EventType type;
  Category category;  // label: the new one; alloc: that of birth
  std::uint32_t id;
};

// What a rank has of a parameter that tensor parallelism cuts along one dimension: pieces of `piece` elements, `stride`
// apart in the whole, the first of them at `offset`. Not cut: `piece` is 0.
struct TensorCut {
  std::uint64_t piece = 0, stride = 0, offset = 0;

  // Where element `i` of the rank's part stands in the whole.
  constexpr std::uint64_t place(std::uint64_t i) const {
    return piece == 0 ? i : i / piece * stride + offset + i % piece;
  }
};

// Part `rank` of `ranks` of a whole [outer, cut dimension, inner], whose cut dimension has `size`.
inline TensorCut cut_among(std::uint64_t ranks, std::uint64_t rank, std::uint64_t size, std::uint64_t inner) {
  if (ranks == 1) return {};
  const std::uint64_t piece = times(size / ranks, inner);
  return {piece, times(size, inner), times(piece, rank)};
}

// A parameter as state dicts name it; executors initialise from the name, tests look gradients up by it.
struct Parameter {
  std::string name;  // "model.layers.0.self_attn.q_proj.weight"
  StorageId storage = 0;
  StorageId gradient = 0;  // latest storage of its .grad; kNoStorage when it never had one
  enum class Role : std::uint8_t { matrix, embedding, bias, norm } role = Role::matrix;
  bool decays() const { return role == Role::matrix || role == Role::embedding; }  // neither a bias nor a norm's
  bool trainable = true;
  std::uint64_t elements = 0;  // of the whole parameter, of which the storage may be a shard; 0: as many as it has
  // What this rank holds of it: so many elements from `first` on, which stand in the storage from `offset` on. None
  // where `elements` is 0: all of it.
  std::uint64_t first = 0, held = 0, offset = 0;
  TensorCut cut = {};  // whose parts are the whole of what stands above
};

// Shard number `rank` of a parameter cut into equal shards of `part` elements, the last of which may be padded.
inline void set_shard(Parameter& parameter, std::uint64_t elements, std::uint64_t part, std::uint64_t rank) {
  parameter.elements = elements;
  parameter.first = times(part, rank) < elements ? times(part, rank) : elements;
  parameter.held = elements - parameter.first < part ? elements - parameter.first : part;
}

// A buffer in host memory, which no event mentions: it stays.
struct HostBuffer {
  const char* name;
  Category category = Category::weights;
  DType dtype = DType::f32;
  std::uint64_t elements = 0;
};

inline constexpr const char* kCublasScope = "cublas";  // of the matrix library's workspaces

inline constexpr StorageId kNoStorage = ~StorageId{0};

// Constants of the AdamW kernel; PyTorch's defaults.
struct AdamW {
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0.01;
};

// Rotary embedding scaling as config.json states it ("default", "linear", "llama3"); numerics only, sizes do not depend
// on it.
struct RopeScaling {
  std::string type = "default";
  double factor = 1;
  double low_freq_factor = 1;
  double high_freq_factor = 4;
  double original_max_position_embeddings = 8192;
};

struct Trace {
  std::vector<Event> events;
  std::vector<StorageInfo> storages;
  std::vector<std::string> phases;  // "load", "step1.forward", ... in order; each begins at its mark event
  std::vector<std::string> names;   // scopes; names[0] is ""
  std::vector<Parameter> parameters;

  // Only with operands (for executors); empty in a dry run.
  std::vector<Run> runs;
  std::vector<View> views;
  std::vector<StorageId> losses;  // scalar loss of each step, in order; read after the step's forward phase
  AdamW adamw;
  RopeScaling rope;
  std::vector<HostBuffer> host;  // what an offloading framework keeps in host memory, from loading to the end
  std::uint64_t vocab_size = 0;  // token ids are below this
  Mesh mesh;                     // of the ranks that run together

  bool has_operands = false;
  bool over_limit = false;  // more was alive than TraceOptions::limit: the trace ends there
  bool overflow = false;    // some size did not fit 64 bits: nothing in this trace is to be believed
};

// The phase (index into Trace::phases) that event number `event` lies in.
std::uint32_t phase_at(const Trace& trace, std::uint32_t event);

}  // namespace ledger
