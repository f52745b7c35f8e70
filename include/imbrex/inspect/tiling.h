// SPDX-License-Identifier: Apache-2.0
// Tiles of a matrix product as arithmetic: what a tile takes, what it reuses, which roof it meets.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "imbrex/core/dtype.h"
#include "imbrex/inspect/gpu_model.h"
#include "imbrex/inspect/occupancy.h"

namespace imbrex {

/// C[m, n] += A[m, k] * B[k, n].
struct MatmulShape {
  int64_t m = 4096, n = 4096, k = 4096;
  double flops() const {
    return 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
  }
};

/// How a product is cut: CTA tile, then the tile that one reader of shared memory computes (a warp with
/// mma.sync, a warp group with wgmma, the whole CTA with tcgen05), then the instruction.
struct MatmulTile {
  int64_t block_m = 128, block_n = 128, block_k = 32;
  int64_t stages = 2;
  int64_t threads = 256;
  int64_t reader_m = 64, reader_n = 64;
  int64_t instruction_m = 16, instruction_n = 8, instruction_k = 16;
  int64_t cluster_m = 1, cluster_n = 1;  ///< CTAs that share B's (A's) tiles by multicast
  DataType operands = float16;
  DataType accumulator = float32;
  DataType result = float16;
  bool operands_in_registers = true;     ///< false: wgmma and tcgen05 read them from shared memory
  bool accumulates_in_registers = true;  ///< false: in tensor memory

  /// Sets readers, instruction and where things live to what the target's tensor cores do: mma.sync by warps
  /// of 64 x 64 (sm_80), wgmma by warp groups of 64 rows (sm_90a), tcgen05 by the CTA (sm_100a).
  void use_instructions_of(std::string_view target);

  /// Bytes of the operand stages: (block_m + block_n) * block_k * stages elements.
  int64_t shared_bytes() const;
  /// Registers a thread: its share of the accumulators and about this much besides (addresses, operands, loop
  /// state).
  int64_t registers_per_thread(int64_t besides = 32) const;
  /// What a CTA takes, for occupancy().
  CtaResources resources(int64_t registers_besides = 32) const;
  /// Operations per byte loaded for one k slab of the CTA tile: 2 m n / ((m + n) element bytes). LaunchError
  /// when an extent is not positive.
  double intensity() const;
};

/// Bytes that a matrix product moves at every level of the memory hierarchy.
struct Traffic {
  double hbm = 0;        ///< A, B and C once: what no tiling can save
  double l2 = 0;         ///< L2 to SMs and back: every CTA's tiles, less what multicast shares, and C
  double shared = 0;     ///< tiles written once and read by every reader, per SM summed over the chip
  double registers = 0;  ///< operands, and accumulators read and written, of every instruction
};
/// The traffic of `shape` cut by `tile`; tiles at the edge count whole. LaunchError when an extent is not
/// positive.
Traffic matmul_traffic(const MatmulShape& shape, const MatmulTile& tile);

/// One level of a roofline.
struct RoofLevel {
  std::string name;  ///< "HBM", "L2", "shared memory", "registers"
  double bytes = 0;
  double bytes_per_second = 0;
  double intensity = 0;   ///< operations per byte moved at this level
  double ridge = 0;       ///< the intensity from which the peak is reached
  double attainable = 0;  ///< min(peak, intensity * bytes_per_second)
  bool is_compute_bound() const { return intensity >= ridge; }
};
struct Roofline {
  std::string gpu;
  DataType operands = float16;
  double peak = 0;  ///< operations per second
  double flops = 0;
  std::vector<RoofLevel> levels;  ///< from the farthest memory to the nearest

  /// The level that allows least; every level allows the peak when the kernel is bound by computing.
  const RoofLevel& bound() const;
  /// The least time in seconds.
  double seconds() const { return flops / bound().attainable; }
};
/// The roofline of so many operations and bytes. LaunchError when the GPU has no unit for the operands or a
/// number is negative; levels without bytes are left out.
Roofline roofline(const GpuModel& gpu, DataType operands, double flops, const Traffic& traffic);

}  // namespace imbrex
