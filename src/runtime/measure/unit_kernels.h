// SPDX-License-Identifier: Apache-2.0
// The PTX of the micro-benchmarks: a loop whose body takes one unit's time again and again.
#pragma once

#include <string>

namespace imbrex::runtime {

/// The parts of such a kernel. It has the parameters (.u64 data, .u64 out, .u32 n, .u32 mask): n is how often the body
/// runs. Thread 0 of CTA 0 writes the clocks that the loop took to `out`, as 64 bits.
struct UnitKernel {
  std::string target;   // "sm_80"
  std::string setup;    // once
  std::string body;     // n times
  int steps = 1;        // that one body counts for
  int threads = 32;     // of a CTA
  int ctas_per_sm = 0;  // 0: one CTA in all
  int cluster = 1;      // CTAs
};

UnitKernel global_chase();  // each load's address is what the one before loaded
UnitKernel shared_chase();
UnitKernel dependent_fma();
UnitKernel special_functions();
UnitKernel cta_barriers();
UnitKernel dependent_products();    // mma.sync m16n8k16
UnitKernel independent_products();  // of all sub-partitions
/// Every thread loads 16 bytes at a time; a body is 64 bytes per thread. Addresses wrap at `mask` + 1 bytes.
UnitKernel streaming_loads();
UnitKernel bulk_loads();        // of 1024 bytes, each after the one before has arrived
UnitKernel barrier_handover();  // two warps that wait for each other by mbarriers
/// Writes a chain of addresses: element i of `data`, `mask` bytes apart, names element i + 1, the last of n the first.
UnitKernel chain_writer();

/// The whole text; the entry is called "unit".
std::string ptx_of(const UnitKernel& kernel);

}  // namespace imbrex::runtime
