// SPDX-License-Identifier: Apache-2.0
#include "runtime/parallel/process_link.h"

#include <fmt/format.h>
#include <unistd.h>

#include <atomic>

#include "core/sha256.h"
#include "imbrex/core/error.h"
#include "runtime/cache/sources_digest.h"
#include "runtime/device/backend.h"
#include "runtime/host/files.h"

namespace imbrex::runtime {

Device cuda_device_of(const Job& job) {
  const int devices = parallel::Ranks::cuda_devices();
  // A launcher may show each process its own GPU alone.
  const int ordinal = devices == 1 ? 0 : job.local_rank;
  if (ordinal >= devices)
    throw LaunchError(
        Diagnostic{{},
                   fmt::format("rank {} is number {} on this server and has no GPU: its process "
                               "sees {}",
                               job.rank, job.local_rank, devices),
                   {},
                   "start as many ranks as there are GPUs, or run them on virtual ones"});
  return Device::cuda(ordinal);
}

/// What tells this server from others.
static std::string this_boot() {
  std::string id = read_file("/proc/sys/kernel/random/boot_id").value_or("unknown");
  return id.substr(0, id.find('\n'));
}

Hello hello_of(const parallel::Ranks& ranks, const Job& job, const Device* device) {
  Hello hello;
  hello.protocol = "imbrex ranks 1";
  hello.build = std::string(sources_digest);
  hello.rank = job.rank;
  hello.size = job.size;
  hello.process = getpid();
  hello.job = sha256(job.name).substr(0, 32);
  const vgpu::Options& options = ranks.options();
  if (ranks.is_virtual()) {
    hello.where = fmt::format("virtual GPUs ({}, {} multiprocessors, {} bytes)", options.target,
                              options.num_sms, options.memory_bytes);
    return hello;
  }
  hello.where = "CUDA GPUs";
  if (device == nullptr) return hello;
  hello.gpu = place_of_gpu(*device);
  if (!job.is_on_one_server()) hello.gpu += " of the server with boot id " + this_boot();
  return hello;
}

void set_cuda_memory(RankLink& link, const Job& job) {
  if (job.is_on_one_server() && can_reach_all(link)) {
    link.memory = cuda_memory_of_processes(link);
    return;
  }
  use_nccl(link);
  link.memory = memory_without_peers(link.device);
}

std::shared_ptr<RankLink> link_process(const parallel::Ranks& ranks, const Job& job) {
  if (!job.is_on_one_server() && job.address.empty())
    throw LaunchError(
        Diagnostic{{},
                   fmt::format("{} ranks, of which {} are on this server, and nothing says where rank 0 is",
                               job.size, job.local_size),
                   {},
                   "set IMBREX_ADDRESS to its HOST:PORT on all of them, or MASTER_ADDR and MASTER_PORT"});
  // Programs make their communicators in the same order.
  static std::atomic<int> communicators = 0;
  const std::string full = fmt::format("{} communicator={}", job.name, communicators++);
  const std::string digest = sha256(full).substr(0, 32);
  const std::string name = job.is_on_one_server() ? fmt::format("imbrex-{}-{}", geteuid(), digest)
                                                  : fmt::format("tcp:{}", job.address);
  return job.rank == 0 ? host_ranks(ranks, job, name) : join_host(ranks, job, name);
}

}  // namespace imbrex::runtime
