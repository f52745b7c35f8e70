// SPDX-License-Identifier: Apache-2.0
// Addresses of CUDA GPUs with a stretch for each rank, one behind the other at the same distance, and the physical memory
// that is mapped into them.
#pragma once

#include <cstdint>
#include <vector>

#include "imbrex/runtime/device.h"
#include "runtime/driver/cuda_driver.h"

namespace imbrex::runtime {

class CudaStretches {
 public:
  /// From one rank's stretch to the next, of addresses alone: as much as no GPU has.
  static constexpr uint64_t kStride = uint64_t{1} << 38;

  /// `users` reach all that is mapped. `can_be_shared`: with other processes, as open files.
  CudaStretches(int ranks, std::vector<Device> users, bool can_be_shared);
  ~CudaStretches();
  CudaStretches(const CudaStretches&) = delete;
  CudaStretches& operator=(const CudaStretches&) = delete;

  struct Part {
    uint64_t offset, bytes;  // within each stretch, in whole pages
  };
  /// The next part of every stretch, nothing mapped there yet. DeviceError when none is left.
  Part take(uint64_t bytes);
  /// Memory of a user's GPU for a part; map() it.
  CUmemHandle create(const Device& user, const Part& part) const;
  /// Maps a part of a rank's stretch, for all users; the handle is released with this object.
  void map(CUmemHandle handle, int rank, const Part& part);
  uint64_t address(const Part& part) const { return base_ + part.offset; }  // on rank 0

 private:
  CUmemAllocationProp properties_of(const Device& user) const;

  const CudaDriver& driver_ = CudaDriver::get();
  const uint64_t all_bytes_;
  const std::vector<Device> users_;
  const bool can_be_shared_;
  CUdeviceptr base_ = 0;
  uint64_t granularity_ = 1, next_ = 0;
  struct Mapping {
    CUdeviceptr address;
    size_t bytes;
    CUmemHandle handle;
  };
  std::vector<Mapping> mappings_;
};

}  // namespace imbrex::runtime
