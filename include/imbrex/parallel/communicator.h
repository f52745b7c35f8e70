// SPDX-License-Identifier: Apache-2.0
// Ranks: one per GPU of a node, each with a device of its own, and the few things that their host programs do together.
//
//   run_ranks(Ranks::virtual_node(4, {.target = "sm_90a", .seed = 7}), [&](Communicator& ranks) {
//     SymmetricTensor x = ranks.symmetric(float32, {n});
//     x.mine().copy_from(inputs[ranks.rank()]);
//     ranks.barrier();
//     ...  // kernels that read x of other ranks
//     ranks.synchronize();
//   });
//
// The same program runs on the GPUs of a server with Ranks::cuda(4). See docs/parallel.md.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "imbrex/core/source_location.h"
#include "imbrex/parallel/symmetric_tensor.h"
#include "imbrex/runtime/device.h"
#include "imbrex/vgpu/options.h"

namespace imbrex::runtime {
class RankGroup;
}

namespace imbrex::parallel {

/// One rank's handle of all of them. A handle: cheap to copy. The thread that run_ranks() made for the rank uses it.
class Communicator {
 public:
  int rank() const;
  int size() const;
  /// The rank's own GPU.
  const Device& device() const;

  // Called by every rank, in the same order and with the same arguments. DeviceError on every rank, naming those that
  // differ, where that is not so; and where a rank has ended, or does not come within the time of Ranks::patience.

  /// Waits for the rank's device, then for the other ranks: what any rank's host or kernels did before is visible to what
  /// any rank does after.
  void barrier(SourceLocation where = SourceLocation::current());
  /// The texts of all ranks, by rank.
  std::vector<std::string> gather(const std::string& text, SourceLocation where = SourceLocation::current());
  /// A tensor of this type and shape on every rank, of undefined contents. It is freed with the last handle of the
  /// communicator. DeviceError where a rank has not enough memory, or GPUs cannot reach one another's.
  SymmetricTensor symmetric(DataType dtype, const std::vector<int64_t>& shape,
                            SourceLocation where = SourceLocation::current());
  /// `count` signals on every rank, for signal::set() and signal::wait(): int32, all zero on every rank when this
  /// returns. synchronize() knows them.
  SymmetricTensor signals(int64_t count, SourceLocation where = SourceLocation::current());

  /// Waits for the rank's device, for what is on its own stream at most for the time of Ranks::patience (for what a program
  /// has put on other streams, without a bound: wait for those after this). Where a kernel has not ended by then, a
  /// signal that it waits for has not come: all signals of this rank are then set to a large value, which ends every
  /// signal::wait(), and DeviceError tells what the rank's signals were. After that the communicator is of no use.
  /// (On the virtual GPU kernels that wait in vain are found at once, and reported by their launch.)
  void synchronize(SourceLocation where = SourceLocation::current());

  struct State;
  explicit Communicator(std::shared_ptr<State> state) : state_(std::move(state)) {}

 private:
  std::shared_ptr<State> state_;
};

/// On which GPUs ranks run.
class Ranks {
 public:
  /// `count` virtual GPUs with these options (vgpu::VirtualNode), 1 to 16. Launches of different ranks run at the same
  /// time, interleaved by the seed. Each rank has Options::memory_bytes.
  static Ranks virtual_node(int count, vgpu::Options options = {});
  /// The CUDA devices 0 to count - 1 of this process.
  static Ranks cuda(int count);
  /// How many CUDA devices there are; 0 without a driver.
  static int cuda_devices();

  Ranks& patience(double seconds) {
    patience_ = seconds;
    return *this;
  }
  int count() const { return count_; }
  bool is_virtual() const { return is_virtual_; }
  const vgpu::Options& options() const { return options_; }
  double patience() const { return patience_; }

 private:
  int count_ = 1;
  bool is_virtual_ = true;
  vgpu::Options options_;
  double patience_ = 60;  // in seconds: how long a rank waits for another on the host
};

/// Runs `body` on a thread per rank and returns when all have ended. Where it throws on a rank, the other ranks' calls
/// that wait for that rank throw DeviceError naming it, and the first error is thrown here. LaunchError where there are not
/// so many GPUs.
void run_ranks(const Ranks& ranks, const std::function<void(Communicator&)>& body);

}  // namespace imbrex::parallel
