// SPDX-License-Identifier: Apache-2.0
#include "runtime/parallel/process_link.h"

#include <fmt/format.h>
#include <unistd.h>

#include <atomic>

#include "core/sha256.h"
#include "imbrex/core/error.h"
#include "runtime/cache/sources_digest.h"
#include "runtime/device/backend.h"

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

Hello hello_of(const parallel::Ranks& ranks, const Job& job, const Device* device) {
  Hello hello;
  hello.protocol = "imbrex ranks 1";
  hello.build = std::string(sources_digest);
  hello.rank = job.rank;
  hello.size = job.size;
  hello.process = getpid();
  const vgpu::Options& options = ranks.options();
  if (ranks.is_virtual()) {
    hello.where = fmt::format("virtual GPUs ({}, {} multiprocessors, {} bytes)", options.target,
                              options.num_sms, options.memory_bytes);
    return hello;
  }
  hello.where = "CUDA GPUs";
  if (device != nullptr) hello.gpu = place_of_gpu(*device);
  return hello;
}

void set_cuda_memory(RankLink& link) {
  if (can_reach_all(link)) {
    link.memory = cuda_memory_of_processes(link);
    return;
  }
  use_nccl(link);
  link.memory = memory_without_peers(link.device);
}

std::shared_ptr<RankLink> link_process(const parallel::Ranks& ranks, const Job& job) {
  if (job.local_size != job.size)
    throw LaunchError(Diagnostic{
        {},
        fmt::format("{} ranks, of which {} are on this server: ranks of several servers cannot be joined",
                    job.size, job.local_size),
        {},
        "start all ranks on one server"});
  // Programs make their communicators in the same order.
  static std::atomic<int> communicators = 0;
  const std::string full = fmt::format("{} communicator={}", job.name, communicators++);
  const std::string name = fmt::format("imbrex-{}-{}", geteuid(), sha256(full).substr(0, 32));
  return job.rank == 0 ? host_ranks(ranks, job, name) : join_host(ranks, job, name);
}

}  // namespace imbrex::runtime
