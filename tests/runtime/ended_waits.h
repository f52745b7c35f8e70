// SPDX-License-Identifier: Apache-2.0
// What a rank's kernels do when their waits have been ended, as they are on GPUs for a rank that does not come.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "imbrex/core/error.h"
#include "imbrex/parallel.h"
#include "runtime/device/backend.h"
#include "runtime/parallel/rank_link.h"

namespace imbrex::parallel {

/// Symmetric memory that remembers where rank 0's is.
class RememberedMemory : public runtime::SymmetricMemory {
 public:
  explicit RememberedMemory(std::shared_ptr<SymmetricMemory> memory) : memory_(std::move(memory)) {}
  uint64_t allocate(runtime::RankLink& link, uint64_t bytes, const std::string& call,
                    SourceLocation where) override {
    all_.emplace_back(memory_->allocate(link, bytes, call, where), static_cast<int64_t>(bytes));
    return all_.back().first;
  }
  int64_t rank_stride_bytes() const override { return memory_->rank_stride_bytes(); }
  /// Address and bytes.
  const std::vector<std::pair<uint64_t, int64_t>>& all() const { return all_; }

 private:
  std::shared_ptr<SymmetricMemory> memory_;
  std::vector<std::pair<uint64_t, int64_t>> all_;
};

/// `prepare(ranks)` returns a function that makes a call, on two ranks of a virtual node. Both make it once, for they have to agree
/// on sizes. Then rank 0 makes it alone: with its waits ended, and all of its symmetric memory full of the byte.
template <class Prepare>
void call_with_ended_waits(vgpu::Options options, uint8_t byte, Prepare prepare) {
  SCOPED_TRACE(::testing::Message() << "memory full of " << int{byte});
  std::vector<std::thread> threads;
  for (const auto& link : runtime::link_threads(Ranks::virtual_node(2, std::move(options))))
    threads.emplace_back([&prepare, byte, link] {
      try {
        const auto memory = std::make_shared<RememberedMemory>(link->memory);
        link->memory = memory;
        Communicator ranks(link);
        const auto call = prepare(ranks);
        call();
        ranks.barrier();
        if (ranks.rank() == 0) {
          for (const auto& [address, bytes] : memory->all())
            ranks.device().backend().fill(address, byte, bytes);
          ranks.synchronize();
          link->set_signals_for_end();
          call();
        }
      } catch (const Error& error) {
        ADD_FAILURE() << error.what();
      }
      link->end("");
    });
  for (std::thread& thread : threads) thread.join();
}

}  // namespace imbrex::parallel
