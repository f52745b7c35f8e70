// SPDX-License-Identifier: Apache-2.0
// What is written down of a cluster's run so that its time can be simulated afterwards: for every warp the
// instructions between two events, the events, and the work it hands to units. There is no time in it:
// whatever order the scheduler took, the same program leaves the same recording.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "imbrex/vgpu/timeline.h"
#include "vgpu/timeline/pipes.h"

namespace imbrex::vgpu {

/// What a warp does next.
struct RecordedStep {
  enum class Kind : uint8_t {
    kRun,       // instructions: `alone`, `issue`, `shared`, `matrix`
    kSubmit,    // hands over work `id`
    kArrive,    // at phase `phase` of object `id`
    kWait,      // for the end of that phase
    kWaitWork,  // for work `id` to be done
    kWaitRead,  // for its source to have been read
    kFlag,      // for what work `id` of cluster `phase` stored to be seen; nothing where `id` is negative
    kDrain,     // for what the CTA has stored to be seen by all
    kAllocate,  // tensor memory: `id` columns in the CTA of rank `phase`
    kFree,
    kRelinquish,  // the permit to allocate
    kWaitSignal,  // for store `id` of a SignalBoard to be there; -1: for none
  };
  Kind kind = Kind::kRun;
  uint32_t insn = 0;  // index into Program::code
  int32_t id = 0;     // kRun: how often products by mma.sync follow loads from shared memory
  int32_t phase =
      0;  // kRun: where its lines of code are told in Recording::code, their number first; -1: there are none
  // kRun, in clocks: of the warp alone; of its sub-partition's port, and of the units that it issues to; of the SM's shared memory;
  // of the sub-partition's tensor core (mma.sync). slots: instructions that are issued.
  float alone = 0, issue = 0, shared = 0, matrix = 0, slots = 0;
  PipeClocks pipes = {};
};

/// What work a unit is given, as the operation itself describes it.
struct WorkDemand {
  enum class Kind : uint8_t {
    kNone,          // takes no time: its effects happen when it is submitted
    kThreadLoad,    // ld.global, cp.async
    kThreadStore,   // st.global
    kThreadUpdate,  // atom.global, red.global
    kTmaLoad,
    kTmaStore,
    kMatrix,      // wgmma, tcgen05.mma
    kCommit,      // after everything before it in its queue
    kTensorLoad,  // tcgen05.ld
    kTensorStore,
    kTensorCopy,  // tcgen05.cp, shift
    kCancel,      // a request of cluster launch control
    kRemote,      // st.async, shared to shared
  };
  Kind kind = Kind::kNone;
  int64_t bytes = 0;
  double clocks = 0;  // of kMatrix: of the tensor core; of kTmaLoad: of the engine, beside its bytes; of
                      // kThreadUpdate: passes of L2's sectors
  int16_t sectors = 0,
          partial_lines = 0;  // of kThreadStore, and by a map: that it moves; of which some in part
  bool pair = false;          // of kMatrix: on the tensor cores of both CTAs
  bool mapped = false;        // of kTmaLoad and kTmaStore: by a tensor map
  bool reduces = false;       // of kTmaStore: adds to what is there, or the like
  bool multicast = false;     // of kTmaLoad: to several CTAs of a cluster, or so told
  bool repeated = false;      // a multicast's further destination: the bytes have been fetched already
  bool after_copies = false;  // comes after the warp's earlier cp.async (cp.async.mbarrier.arrive)
  uint64_t block = 0;         // which bytes of global memory: equal numbers mean equal bytes; 0: none
  uint64_t address = 0;       // where they begin; 0: the lines tell
};

struct RecordedWork {
  WorkDemand demand;
  uint32_t insn = 0;
  int16_t rank = 0, warp = 0;
  int16_t peer = -1;                  // whose memory it is of the GPUs of a node; -1: this one's
  int32_t signal = -1;                // what others may wait for: its number on a SignalBoard
  int32_t queue = -1;                 // works of one queue follow each other
  int32_t parent = -1;                // starts when that work is done, without being submitted by a warp
  int32_t after = -1;                 // first of the works it waits for ...
  int32_t after_count = 0;            // ... in Recording::lists
  int32_t text = -1;                  // Recording::texts
  int32_t lines = 0, line_count = 0;  // lines of global memory, in Recording::lines
};

/// A line of 128 bytes of global memory: its number, and which of its sectors are touched. Memory and L2 move halves of lines.
struct TouchedLine {
  static constexpr int kShift = 7, kSectorShift = 5;
  static constexpr uint64_t kFirstSector = uint64_t{1} << 60, kNumber = kFirstSector - 1;
  static constexpr uint64_t of(uint64_t address) {
    return address >> kShift | kFirstSector << (address >> kSectorShift & 3);
  }
  /// Adds the sector of an address to the lines from `begin` on, each of which is there once.
  static void add(std::vector<uint64_t>& lines, size_t begin, uint64_t address) {
    const uint64_t line = of(address);
    const auto same = std::find_if(lines.begin() + static_cast<ptrdiff_t>(begin), lines.end(),
                                   [&](uint64_t other) { return (other & kNumber) == (line & kNumber); });
    if (same == lines.end())
      lines.push_back(line);
    else
      *same |= line;
  }
};

struct RecordedArrival {
  int32_t work = -1, object = -1, phase = 0;
};

/// Something that is waited for by phases: an mbarrier, a named barrier, the cluster barrier.
struct RecordedObject {
  enum class Kind : uint8_t { kMbarrier, kNamed, kCluster };
  Kind kind = Kind::kMbarrier;
  int rank = 0;
  uint32_t which = 0;  // offset or number
  int64_t init = -1;   // instruction of mbarrier.init
};

struct Recording {
  /// It ends where a sample does, before the run did; the run stored `stored_bytes` in all, whether recorded or not.
  bool is_cut = false;
  bool is_ended = false;  // the run ended with it, and nobody knows what it would have stored
  int64_t stored_bytes = 0;
  int64_t cluster = 0;        // number in the grid
  std::vector<int64_t> ctas;  // linear numbers, by rank
  int warps_per_cta = 1;
  std::vector<std::vector<RecordedStep>> warps;  // rank * warps_per_cta + warp
  std::vector<RecordedWork> works;
  std::vector<RecordedArrival> arrivals;  // of works
  std::vector<RecordedObject> objects;
  std::vector<int32_t> lists;
  std::vector<uint64_t> lines;
  std::vector<uint16_t> code;  // lines of machine code, by number
  std::vector<std::string> texts;
};

}  // namespace imbrex::vgpu
