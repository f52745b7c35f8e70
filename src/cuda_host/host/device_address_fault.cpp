// SPDX-License-Identifier: Apache-2.0
#include "cuda_host/host/device_address_fault.h"

#include <unistd.h>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstring>

#include "vgpu/memory/memory.h"

namespace imbrex::cuda {
namespace {

struct sigaction g_before;

/// Nothing here may allocate or lock: the fault may have come from anywhere.
void handle(int signal, siginfo_t* info, void* context) {
  const auto address = reinterpret_cast<uint64_t>(info->si_addr);
  constexpr uint64_t kMostBytes = uint64_t{1} << 40;
  if (address >= vgpu::kGlobalBase && address - vgpu::kGlobalBase < kMostBytes) {
    char line[320];
    const int length =
        std::snprintf(line, sizeof line,
                      "imbrex: host code accesses 0x%llx, which is a device address: only kernels and "
                      "cudaMemcpy may use it\n"
                      "  help: copy with cudaMemcpy, or allocate with cudaMallocManaged or cudaMallocHost\n",
                      static_cast<unsigned long long>(address));
    if (length > 0 && write(STDERR_FILENO, line, static_cast<size_t>(length)) < 0) _exit(128 + signal);
  }
  if ((g_before.sa_flags & SA_SIGINFO) != 0 && g_before.sa_sigaction != nullptr) {
    g_before.sa_sigaction(signal, info, context);
    return;
  }
  if (g_before.sa_handler != SIG_DFL && g_before.sa_handler != SIG_IGN) {
    g_before.sa_handler(signal);
    return;
  }
  // Without us the instruction faults again, and the process ends with this signal.
  sigaction(signal, &g_before, nullptr);
}

}  // namespace

void explain_device_address_faults() {
  struct sigaction action;
  std::memset(&action, 0, sizeof action);
  action.sa_sigaction = handle;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigaction(SIGSEGV, &action, &g_before);
}

}  // namespace imbrex::cuda
