// kernels_transfer.cc - tensors put aside in host memory and fetched back, dense and in row-major order.
#include "probe/host/kernels.h"

namespace ledger::host {
void copy_to_host(KernelCall& call) {
  const HostView& in = call.in[0];
  std::vector<std::byte>& memory = call.host_memory[call.attr.i[0]];
  memory.resize(in.numel() * element_bytes(in.dtype));
  move_elements(dense_view(in, memory.data(), in.dtype), in);
}

void copy_from_host(KernelCall& call) {
  const auto found = call.host_memory.find(call.attr.i[0]);
  const HostView& out = call.out[0];
  if (found == call.host_memory.end() || found->second.size() != out.numel() * element_bytes(out.dtype)) {
    call.error = "host memory holds no tensor of this number and size";
    return;
  }
  move_elements(out, dense_view(out, found->second.data(), out.dtype));
  call.host_memory.erase(found);
}

}  // namespace ledger::host
