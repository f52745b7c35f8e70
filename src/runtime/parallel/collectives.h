// SPDX-License-Identifier: Apache-2.0
// Collectives of ranks whose kernels cannot reach each other's memory.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "imbrex/core/dtype.h"

namespace imbrex::runtime {

struct CUstream_st;  // the CUDA driver's
class RankLink;

class Collectives {
 public:
  virtual ~Collectives() = default;
  /// "NCCL 2.28.9".
  virtual std::string name() const = 0;
  // Addresses of dense memory of this rank; numbers of elements. LaunchError for types that are not added.
  virtual void all_reduce(uint64_t from, uint64_t to, int64_t count, DataType dtype, CUstream_st* stream) = 0;
  /// `bytes` of each rank, one behind the other.
  virtual void all_gather(uint64_t from, uint64_t to, int64_t bytes, CUstream_st* stream) = 0;
  /// `count` for each rank.
  virtual void reduce_scatter(uint64_t from, uint64_t to, int64_t count, DataType dtype,
                              CUstream_st* stream) = 0;
  /// Ends what is under way, and all later calls fail. Any thread may call it.
  virtual void abort() noexcept = 0;
};

/// On virtual GPUs: the ranks' host programs tell each other what the devices have. They wait, and cannot be captured.
std::shared_ptr<Collectives> collectives_by_host(RankLink& link);

}  // namespace imbrex::runtime
