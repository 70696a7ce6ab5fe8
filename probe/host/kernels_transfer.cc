// kernels_transfer.cc - tensors put aside in host memory and fetched back, dense and in row-major order.
#include "probe/host/kernels.h"
#include "probe/host/strided_loop.h"

namespace ledger::host {
namespace {

HostView dense(const HostView& like, std::vector<std::byte>& memory) {
  HostView view = like;
  view.data = memory.data();
  std::int64_t stride = 1;
  for (std::size_t i = like.rank; i-- > 0;) {
    view.strides[i] = stride;
    stride *= static_cast<std::int64_t>(like.sizes[i]);
  }
  return view;
}

}  // namespace

void copy_to_host(KernelCall& call) {
  const HostView& in = call.in[0];
  std::vector<std::byte>& memory = call.host_memory[call.attr.i[0]];
  memory.resize(in.numel() * element_bytes(in.dtype));
  move_elements(dense(in, memory), in);
}

void copy_from_host(KernelCall& call) {
  const auto found = call.host_memory.find(call.attr.i[0]);
  const HostView& out = call.out[0];
  if (found == call.host_memory.end() || found->second.size() != out.numel() * element_bytes(out.dtype)) {
    call.error = "host memory holds no tensor of this number and size";
    return;
  }
  move_elements(out, dense(out, found->second));
  call.host_memory.erase(found);
}

}  // namespace ledger::host
