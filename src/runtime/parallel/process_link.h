// SPDX-License-Identifier: Apache-2.0
// Ranks that are processes, of one server or of several. All of them connect to the process of rank 0, which keeps their meetings and, on
// virtual GPUs, hosts the node: the other ranks' calls of their devices are carried out there, so that launches depend on
// the seed alone and are checked between ranks as they are between threads.
//
// A rank has two connections: one for its calls, and one on which it is told that another rank has failed, and, several times
// within its patience, that rank 0 is still there. When a process ends, whatever ends it, the system closes both; one that is
// stopped says nothing.
#pragma once

#include <memory>
#include <string>

#include "runtime/parallel/rank_link.h"
#include "runtime/parallel/rank_protocol.h"

namespace imbrex::runtime {

/// The link of rank 0 to all others, who listens under `name`.
std::shared_ptr<RankLink> host_ranks(const parallel::Ranks& ranks, const Job& job, const std::string& name);
/// The link of another rank.
std::shared_ptr<RankLink> join_host(const parallel::Ranks& ranks, const Job& job, const std::string& name);

/// The CUDA device of a rank's process. LaunchError where the process sees too few.
Device cuda_device_of(const Job& job);
/// The symmetric memory of CUDA GPUs, or NCCL in its place.
void set_cuda_memory(RankLink& link, const Job& job);
/// What a rank says of itself. `device`: its own, where that is known already.
Hello hello_of(const parallel::Ranks& ranks, const Job& job, const Device* device);

}  // namespace imbrex::runtime
