// SPDX-License-Identifier: Apache-2.0
// Options of the virtual GPU: target, checkers, arithmetic, limits.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

namespace imbrex {
struct GpuModel;
}

namespace imbrex::vgpu {

struct Watch;  // imbrex/vgpu/watch.h

/// Which checkers run. With everything off, kernels run the unchecked bodies, as they ship (without tests of assume()
/// and of gathers' indices): memory safety of the host, deadlocks and the budget are still watched.
struct CheckSet {
  bool uninitialized = true;         // registers, shared and local memory
  bool uninitialized_global = true;  // with `uninitialized`: also global bytes never written since allocation
  bool races = true;         // on shared and tensor memory, between lanes, warps and asynchronous units
  bool global_races = true;  // with `races`: on global memory too, within and between clusters
  bool stream_order = true;  // between launches, copies and the host, where they are on streams
  bool proxy_fences = true;  // what units read of shared memory that threads wrote; tcgen05 fences
  bool layouts = true;       // matrix descriptors against how tensor copies wrote the data
  bool barriers = true;
  bool collectives = true;
  bool async_lifetime = true;
  bool leaks = true;

  static CheckSet none() {
    return {false, false, false, false, false, false, false, false, false, false, false};
  }
  static CheckSet all() { return {true, true, true, true, true, true, true, true, true, true, true}; }
  bool any() const {
    return uninitialized || uninitialized_global || races || global_races || stream_order || proxy_fences ||
           layouts || barriers || collectives || async_lifetime || leaks;
  }
};

/// How strictly a kernel is held to the letter of PTX.
enum class Strictness : uint8_t {
  kStrict,     // whatever PTX leaves undefined is a finding
  kPractical,  // what every chip makes right, and established libraries rely on, is a note (BentRule)
};

/// How tensor-core sums are computed.
enum class TensorMath : uint8_t {
  kExact,  // bit for bit the recorded hardware's: products exact, aligned, truncated
  kFast,   // fp32 SIMD; differs from the hardware in the last bits
  kNone,   // nothing is multiplied, and what the kernel computes is wrong: enough to predict its time
};

/// What of a launch's time is predicted and kept for drawing (imbrex/vgpu/timeline.h).
struct TimelineOptions {
  bool record = false;   // predict at all; off, it costs nothing
  int64_t cta = -1;      // keep the lanes of the cluster that holds this CTA; -1: none
  bool explain = false;  // also why it takes so long: Timeline::why; about ten times the time of predicting
  /// Of a grid of many waves run some, and of a kernel that loops over its work replay the first rounds; the rest is
  /// extrapolated (docs/timeline.md, Sampling). What the kernel computes is then not complete. Does nothing where
  /// nothing repeats, and for the clusters that `cta` and `explain` ask about.
  bool sample = false;
  double clock_ghz = 0;  // of the SMs, where power or a lock holds it down; 0: the GPU model's
  std::shared_ptr<const GpuModel> gpu = {};  // whose clock, bandwidths and latencies are taken
      // (imbrex/inspect/gpu_model.h); null: the one that stands for the target
};

/// What a virtual GPU is, and how it runs and watches kernels.
struct Options {
  std::string target = "sm_100a";  // sm_80, sm_86, sm_89, sm_90a, sm_100a, sm_103a, sm_120a, ...
  int num_sms = 0;       // bounds how many CTAs are resident at once; 0: as many as the real chip has
  int host_threads = 0;  // 0: one per core. Results do not depend on it; IMBREX_HOST_THREADS=N overrides it
  uint64_t seed = 0;     // interleaving and completion order; 0 is a plain fair order
  CheckSet checks = {};
  /// Strict suits kernels whose compiler is at hand; for PTX of other people kPractical says what matters.
  Strictness strictness = Strictness::kStrict;
  TensorMath tensor_math = TensorMath::kExact;
  int64_t instruction_budget = 0;  // warp instructions of one cluster before it counts as endless; 0: 2^40
  /// The same without any store, arrival, barrier or exit in between: a loop that waits for what never comes.
  int64_t stall_budget = int64_t{1} << 26;
  int64_t memory_bytes = int64_t{64} << 30;  // size of global memory; host pages are taken when touched
  int max_findings = 32;                     // a launch stops after so many distinct ones
  int64_t sampled_ctas = 0;                  // of a larger grid run about so many, spread evenly; 0: all
  TimelineOptions timeline = {};             // predict the time on the real chip
  bool count_banks = false;                  // count bank conflicts of shared memory; off, it costs nothing
  bool count_sectors = false;                // count sectors of global memory; off, it costs nothing
  std::shared_ptr<Watch> watch = nullptr;    // told how far launches have come, and asked whether to stop
};

}  // namespace imbrex::vgpu
