// SPDX-License-Identifier: Apache-2.0
// What a kernel moves and which banks it meets, counted from its IR without running it.
//
// The IR is walked for every CTA with the launch's sizes put in: scalars are computed, loops and branches
// followed, and every op that moves data counts the bytes that its layouts and the edges of its tensors give.
// No element is ever looked at. The virtual GPU counts the same while it runs (vgpu::Statistics,
// vgpu::BankUse); a test over the kernel library holds the two equal.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "imbrex/core/source_location.h"
#include "imbrex/inspect/tiling.h"
#include "imbrex/lang/kernel_parameters.h"

namespace imbrex {

namespace ir {
struct Function;
}

/// The bytes of a launch, over all CTAs. Names as in vgpu::Statistics.
struct TrafficCounts {
  int64_t global_bytes_read = 0, global_bytes_written = 0;  ///< by threads
  int64_t shared_bytes_read = 0, shared_bytes_written = 0;  ///< by threads
  int64_t cp_async_bytes = 0;
  int64_t tma_bytes_loaded = 0;    ///< boxes count whole, once for every CTA that gets them
  int64_t tma_bytes_repeated = 0;  ///< of those: by multicast to a further CTA
  int64_t tma_bytes_stored = 0;
  int64_t tensor_memory_bytes = 0;  ///< tcgen05 loads, stores and copies
  int64_t operand_bytes = 0;        ///< of shared memory read by wgmma and tcgen05.mma
  int64_t tensor_flops = 0;
  friend bool operator==(const TrafficCounts&, const TrafficCounts&) = default;

  /// The same as levels of a roofline. HBM: `compulsory`, every tensor once. L2: what SMs read and write.
  /// Shared memory: everything written to it and read from it.
  Traffic levels(double compulsory) const;
};

/// One statement that moves data.
struct KernelMove {
  std::string op;        ///< "tma_global_to_shared"
  std::string tile;      ///< "float16 [128, 64]"
  std::string from, to;  ///< "global memory", "shared memory", "registers", "tensor memory", "tensor core"
  SourceLocation where;
  int64_t times = 0;  ///< carried out, over all CTAs and thread groups
  int64_t bytes = 0;  ///< moved, over all of these
};

/// What one statement's accesses take of shared memory's banks.
struct BankPrediction {
  std::string op;
  SourceLocation where;
  bool writes = false;
  int bytes = 0;           ///< of a lane; 16 for rows of ldmatrix and stmatrix
  int64_t accesses = 0;    ///< instructions of warps
  int64_t wavefronts = 0;  ///< cycles of shared memory they take
  int64_t ideal = 0;       ///< cycles they would take without conflicts
  int degree = 1;
};

/// A tensor of the kernel and the memory it lives in.
struct KernelTensor {
  std::string name;    ///< "s_a"; "" where the author gave none
  std::string memory;  ///< as in KernelMove
  std::string type;    ///< "float16 [4, 128, 64]"
  int64_t bytes = 0;   ///< of a CTA for shared and tensor memory, of a thread for registers, of all elsewhere
  SourceLocation where;
};

struct KernelTraffic {
  std::vector<int64_t> grid = {1, 1, 1};  ///< CTAs
  TrafficCounts counts;
  DataType operands = float32;    ///< what the tensor cores multiply; float32 where they have no work
  double compulsory = 0;          ///< bytes of every tensor in global memory, once
  double register_bytes = 0;      ///< operands and accumulators of tensor-core instructions, where registers
  std::vector<KernelMove> moves;  ///< in the order they first happen
  std::vector<BankPrediction> banks;  ///< the same
  std::vector<KernelTensor>
      tensors;  ///< in global, shared and tensor memory, and what products take in registers
  /// Empty when everything was known; else what was not, with its line. Then the counts are a lower bound.
  std::string unknown;

  bool is_exact() const { return unknown.empty(); }
  Traffic levels() const;
};

/// Counts a freshly traced kernel's traffic. `arguments` are the run-time integer arguments of the launch, in
/// the order of the kernel's parameters, pointers and floating-point numbers left out. A kernel that shares
/// out its tiles by cluster launch control is counted as if every CTA did its own: the sum is the same.
/// Runs the passes; CompileError from those, LaunchError when arguments are missing or the walk is too long.
KernelTraffic kernel_traffic(ir::Function& function, std::span<const int64_t> arguments);

/// The run-time integer arguments within the shape of a call (KernelBase, Case::shape).
std::vector<int64_t> run_time_integers(std::span<const ParameterInfo> parameters,
                                       std::span<const int64_t> shape);

}  // namespace imbrex
