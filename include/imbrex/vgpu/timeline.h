// SPDX-License-Identifier: Apache-2.0
// A predicted timeline of a launch on the virtual GPU: who would be busy, in flight or waiting when, on the
// real chip. Asked for by Options::timeline, found in Report::timeline. The cost model and its limits:
// docs/timeline.md.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace imbrex::vgpu {

/// What a lane of the picture belongs to.
enum class LaneKind : uint8_t {
  kWarp,           // one warp of a CTA
  kCopies,         // loads by threads: cp.async and ld.global
  kTma,            // the TMA engine: bulk and tensor copies
  kTensorCore,     // matrix products: mma, wgmma, tcgen05.mma
  kTensorMemory,   // tcgen05.ld, st and cp
  kLaunchControl,  // requests of cluster launch control
  kBarrier,        // one mbarrier
  kLinks,          // the GPU's links to the others of its node
};

/// What happens during a span.
enum class SpanKind : uint8_t {
  kRun,      // a warp executes instructions
  kWait,     // a warp waits
  kLoad,     // a load is in flight: issued, landed
  kStore,    // a store is in flight: issued, written
  kMatrix,   // the tensor core multiplies
  kMove,     // data moves between tensor memory and registers or shared memory
  kControl,  // launch control
  kPhase,    // a barrier's phase, from its first arrival to its completion
};
/// "run", "wait", "load", ...
const char* name(SpanKind kind);

/// One box of the picture, in cycles from the start of the launch.
struct TimelineSpan {
  int64_t begin = 0, end = 0;
  SpanKind kind = SpanKind::kRun;
  int32_t place = -1;  // the instruction it belongs to: index into Timeline::places, or -1
  int32_t text = -1;   // what it does: index into Timeline::texts, or -1
};

/// Where an instruction was written.
struct TimelinePlace {
  std::string file;  // kernel source by .loc, or ""
  int line = 0, ptx_line = 0;
  std::string ptx;  // the instruction as written
};

/// One lane: a warp, a unit or a barrier of one CTA.
struct TimelineLane {
  LaneKind kind = LaneKind::kWarp;
  int64_t cta = 0;                  // linear number in the grid
  int rank = 0;                     // of that CTA in its cluster
  int index = 0;                    // of the warp; of a barrier its offset in shared memory
  std::string name;                 // "warp 3", "TMA", "tensor core", "mbarrier 0x400"
  int32_t place = -1;               // barriers: their mbarrier.init
  std::string variable;             // barriers: what holds them, when the PTX tells: "pipe.full_barriers"
  std::vector<int> arrivals;        // barriers: warps that signal it, themselves or through units
  std::vector<int> waits;           // barriers: warps that wait for it
  std::vector<TimelineSpan> spans;  // by begin; those of units may overlap
};

/// Shares of the launch's time, 0 to 1.
struct Utilisation {
  double tensor_core = 0;  // multiplying, mean over all SMs
  double tma = 0;          // TMA engines moving bytes, mean over all SMs
  double l2 = 0;           // bytes through L2 against its bandwidth
  double hbm = 0;          // bytes from and to memory against its bandwidth
  double issue = 0;        // issue slots used, mean over all SMs
  double waiting = 0;      // of the warps' time, what they spend waiting
  double links_out = 0;    // of the GPUs of a node: its links to the others, sending
  double links_in = 0;     // ... and receiving
};

/// What time can go to. One of them made free at a time tells what limits a launch.
enum class Resource : uint8_t {
  kStart,            // from a free place on an SM to a CTA's first instruction
  kInstructions,     // issue slots, and results that the next instruction waits for
  kSharedMemory,     // accesses by threads, with their bank conflicts
  kTensorCore,       // matrix products: mma, wgmma, tcgen05.mma
  kTma,              // the TMA engine: bulk and tensor copies
  kL2Bandwidth,      // an SM's port to L2, and L2 itself
  kL2Latency,        // loads that hit in L2; the first part of those that do not
  kMemoryBandwidth,  // HBM
  kMemoryLatency,    // what a miss adds to L2's latency
  kSynchronisation,  // from the last arrival at a barrier to the next instruction of who waits
  kTensorMemory,     // tcgen05.ld, st, cp, and waiting for columns
  kLaunchControl,    // requests of cluster launch control
};
inline constexpr int kResources = 12;
/// "memory bandwidth", "tensor core", ...
const char* name(Resource resource);

/// Why a launch takes the time it does. Asked for by TimelineOptions::explain.
struct TimelineExplanation {
  /// Clocks by resource.
  using Shares = std::array<double, kResources>;

  /// The critical path, from the start of the launch to its end: what would have to be faster for the launch
  /// to end sooner. Its parts add up to Timeline::cycles.
  Shares path{};
  /// The same by instruction, the longest first.
  struct Part {
    Resource resource = Resource::kStart;
    int warp = -1;       // of its CTA; -1: none
    int32_t place = -1;  // index into Timeline::places, or -1
    double cycles = 0;
  };
  std::vector<Part> parts;
  /// The path in order of time, in equal steps.
  std::vector<Shares> strip;

  /// What the warps of the lanes' cluster wait for, the longest first.
  struct Wait {
    int rank = 0, warp = 0;
    int32_t place = -1;  // where it waits
    std::string what;    // "mbarrier 0x408", "barrier 1", "the cluster barrier", "wgmma m64n256k16 ..."
    double cycles = 0;
    Shares because{};  // of these cycles, what passed meanwhile on the way to what was waited for
  };
  std::vector<Wait> waits;
  std::vector<double> lived;  // clocks of each warp of that cluster (rank * warps of a CTA + warp)

  /// Clocks of the launch if one resource cost nothing, the least first.
  struct WhatIf {
    Resource free = Resource::kStart;
    int64_t cycles = 0;
  };
  std::vector<WhatIf> what_if;
};

/// What the cost model says of one launch.
struct Timeline {
  std::string target;
  std::string chip;      // whose rates were taken: "B200" (the GPU model's name, in capitals)
  double clock_ghz = 1;  // cycles per nanosecond
  int sms = 1;           // modelled; bandwidths of the chip are shared in proportion
  int active_sms = 0;    // of those, the ones that had work
  int64_t ctas = 0;
  int64_t ctas_per_sm = 1;  // resident at once
  /// Of the launch's time, the part that was replayed; the rest is extrapolated (TimelineOptions::sample). 1: all.
  double replayed = 1;
  /// By how much of itself `cycles` may be off for that: how far the rounds that were replayed differ.
  double sampling_error = 0;
  int64_t cycles = 0;  // from the first CTA's start to the last one's end
  /// The time in microseconds at clock_ghz, without the launch itself.
  double microseconds() const { return static_cast<double>(cycles) / (clock_ghz * 1e3); }
  Utilisation use;
  /// Per CTA the time in which loads are in flight and the time in which the tensor core works for it: of the
  /// shorter, the part that the other covers. 0: one after the other; 1: wholly hidden. -1 when there is no
  /// tensor-core work or no load.
  double overlap = -1;
  int64_t hbm_bytes = 0, l2_bytes = 0;
  int rank = -1;  // of the GPU where several ran together, all of which began at cycle 0; -1: it was alone
  int64_t link_bytes_out = 0, link_bytes_in = 0;  // sent to and received from the others
  /// False when the simulation got stuck and nothing above is to be believed.
  bool complete = true;
  std::vector<TimelineLane> lanes;  // of the cluster asked for
  std::vector<TimelinePlace> places;
  std::vector<std::string> texts;
  std::shared_ptr<const TimelineExplanation> why;  // where TimelineOptions::explain asked for it
};

}  // namespace imbrex::vgpu
