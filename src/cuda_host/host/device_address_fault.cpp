// SPDX-License-Identifier: Apache-2.0
#include "cuda_host/host/device_address_fault.h"

#include <fmt/format.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstring>

#include "cuda_host/host/host.h"
#include "cuda_host/host/host_threads.h"
#include "vgpu/memory/memory.h"

namespace imbrex::cuda {
namespace {

struct sigaction g_before;

/// What the program has there, where that can be told without waiting. Nothing here may allocate or wait: the
/// fault may have come from anywhere.
int describe(char* to, size_t room, uint64_t address) {
  Host* const host = Host::made();
  if (host == nullptr || !Host::mutex().try_lock()) return 0;
  const Block* const block = host->memory.find(address);
  const int length =
      block == nullptr
          ? std::snprintf(to, room, "  it is in no allocation\n")
          : std::snprintf(to, room, "  it is byte %llu of an allocation of %lld bytes at 0x%llx\n",
                          static_cast<unsigned long long>(address - block->address),
                          static_cast<long long>(block->bytes),
                          static_cast<unsigned long long>(block->address));
  Host::mutex().unlock();
  return length;
}

/// As a finding, for `imbrex run`. This may allocate where the fault has come from an allocator: then the alarm ends the process,
/// which ends anyway.
void report(uint64_t address) {
  Host* const host = Host::made();
  if (host == nullptr || !host->log.is_collected() || !Host::mutex().try_lock()) return;
  constexpr unsigned kSeconds = 5;
  alarm(kSeconds);
  vgpu::Finding finding;
  finding.kind = vgpu::FindingKind::kOutOfBounds;
  finding.address = address;
  finding.message = fmt::format("host code accesses 0x{:x}, which is a device address", address);
  if (const std::string place = place_in_program(); !place.empty()) finding.facts.push_back("in " + place);
  finding.hint = "copy with cudaMemcpy, or allocate with cudaMallocManaged or cudaMallocHost";
  host->log.add("the host program", finding);
  host->log.write_state();
  alarm(0);
  Host::mutex().unlock();
}

void handle(int signal, siginfo_t* info, void* context) {
  const auto address = reinterpret_cast<uint64_t>(info->si_addr);
  constexpr uint64_t kMostBytes = uint64_t{1} << 40;
  if (address >= vgpu::kGlobalBase && address - vgpu::kGlobalBase < kMostBytes) {
    char line[480];
    int length =
        std::snprintf(line, sizeof line,
                      "imbrex: host code accesses 0x%llx, which is a device address: only kernels and "
                      "cudaMemcpy may use it\n",
                      static_cast<unsigned long long>(address));
    length += describe(line + length, 120, address);
    length +=
        std::snprintf(line + length, sizeof line - static_cast<size_t>(length),
                      "  help: copy with cudaMemcpy, or allocate with cudaMallocManaged or cudaMallocHost\n");
    report(address);
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
