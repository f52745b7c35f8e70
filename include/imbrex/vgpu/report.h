// SPDX-License-Identifier: Apache-2.0
// What is known after a launch on the virtual GPU: findings, exact counts, output.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace imbrex::vgpu {

struct Timeline;  // imbrex/vgpu/timeline.h

/// What can be found wrong with a kernel. Every kind but the first group can be switched off in CheckSet.
enum class FindingKind : uint8_t {
  // Always reported: the kernel cannot go on, or the host would be harmed.
  kOutOfBounds,         // access outside every allocation, variable or window
  kMisaligned,          // address not a multiple of the access size
  kDeadlock,            // no thread can run; the message tells what each waits for
  kEndlessRun,          // the instruction budget was used up
  kTrap,                // trap, failed assertion
  kInterrupted,         // the host ended the launch (Watch::stop)
  kIllegalInstruction,  // operands or state the hardware answers with an error or leaves undefined
  // Checkers.
  kUninitializedRead,    // register, shared, local or global bytes never written
  kUseAfterFree,         // freed global memory
  kRace,                 // conflicting accesses with no happens-before between them
  kMissingProxyFence,    // ordered, but the generic and the async proxy were not joined by a fence
  kMissingTensorFence,   // ordered, but without tcgen05.fence::before_thread_sync or after_thread_sync
  kOperandLayout,        // a matrix descriptor disagrees with how a tensor copy wrote the data
  kInvalidBarrier,       // barrier misuse: wrong count, re-initialised while in use, not initialised
  kDivergentCollective,  // .aligned or .sync executed by fewer lanes than it names
  kAsyncInFlight,        // the CTA exits, or the buffer is reused, while asynchronous work is under way
  kResourceLeak,         // tensor memory not freed, barrier not invalidated before reuse
  kTensorMemory,         // tensor memory outside an allocation, or by the wrong warp
  kCount,
};

/// The name findings are printed under: "out-of-bounds", "deadlock", ...
std::string_view name(FindingKind kind);

/// How grave it is. What breaks a BentRule is a note where Options::strictness is kPractical.
enum class Severity : uint8_t { kFinding, kNote };
/// "finding", "note".
std::string_view name(Severity severity);

enum class BentRule : uint8_t;  // imbrex/vgpu/bent_rule.h

/// A place in a kernel: the author's line by .loc where the PTX has one, and the line of the PTX text. Of findings about
/// the order of calls, a place in the host program: file and line, and in `function` what the call does.
struct CodePlace {
  std::string file;      // kernel source; empty when the PTX has no .loc for it
  int line = 0;          // line of `file`, from 1
  int ptx_line = 0;      // line of the PTX text, from 1
  std::string ptx;       // the instruction, as written
  std::string function;  // entry or device function it stands in
  std::string object;  // mbarrier.init: the variable that holds the barriers, as the PTX tells it; else empty
  bool is_known() const { return ptx_line > 0 || line > 0; }
};

/// Who did it: coordinates of one thread, or of the asynchronous unit working for it.
struct Actor {
  int rank = -1;                       // of the GPU, where several run together; -1: there is one
  std::array<int, 3> cta{-1, -1, -1};  // %ctaid
  int warp = -1;                       // warp of the CTA, -1 where no single one is meant
  int lane = -1;                       // lane of the warp, -1 where the whole warp is meant
  std::string unit;                    // "" for a thread; else "TMA", "tensor core", "cp.async", ...
};

/// One thing that is wrong. Equal findings (same kind, same pair of places) are reported once, with a count.
struct Finding {
  FindingKind kind = FindingKind::kTrap;
  Severity severity = Severity::kFinding;
  BentRule rule = {};     // the one that was bent, whatever the severity
  std::string message;    // one line: what happened, with the numbers
  CodePlace place;        // where
  Actor actor;            // who
  CodePlace other_place;  // races: the other access
  Actor other_actor;
  uint64_t address = 0;            // as the kernel wrote it; 0 where no memory is involved
  std::vector<std::string> facts;  // nearest allocation, who waits for what, ...
  std::string hint;                // the remedy, where there is one
  int64_t count = 1;               // how many times it happened

  /// The finding as text, quoting the kernel's source line where the file can be read.
  std::string format() const;
};

/// What a launch cost, counted exactly and independent of host threads.
struct Statistics {
  int64_t ctas = 0;
  int64_t instructions = 0;                                 // warp instructions executed
  int64_t lane_instructions = 0;                            // the same, times active lanes
  int64_t global_bytes_read = 0, global_bytes_written = 0;  // ld/st/atom by threads
  int64_t shared_bytes_read = 0, shared_bytes_written = 0;
  int64_t local_bytes_read = 0, local_bytes_written = 0;
  int64_t cp_async_bytes = 0;       // non-bulk asynchronous copies
  int64_t tma_bytes_loaded = 0;     // bulk and tensor copies into shared memory
  int64_t tma_bytes_repeated = 0;   // of those loaded: by multicast to a further CTA, so not from L2 again
  int64_t tma_bytes_stored = 0;     // and out of it, reductions included
  int64_t tensor_memory_bytes = 0;  // tcgen05.ld/st/cp
  int64_t operand_bytes = 0;        // of shared memory that wgmma and tcgen05.mma read as A and B
  int64_t tensor_flops = 0;         // multiplications and additions of mma, wgmma, tcgen05.mma
  int64_t async_operations = 0;
  int64_t barrier_waits = 0;  // times a warp had to wait
};

/// What one instruction's accesses took of shared memory's 32 banks over a launch: ld, st, ldmatrix and
/// stmatrix on the CTA's own shared memory (atomics, asynchronous copies and tensor cores are not counted).
/// How lanes share a wavefront: imbrex/inspect/banks.h.
struct BankUse {
  CodePlace place;
  bool writes = false;
  int bytes = 0;           // of a lane; 16 for the rows of ldmatrix and stmatrix
  int64_t accesses = 0;    // times a warp executed it, with at least one lane
  int64_t wavefronts = 0;  // cycles of shared memory those took
  int64_t ideal = 0;       // cycles they would take without conflicts
  int degree = 1;          // the most different words that one bank served in one phase
};

/// How an instruction accesses global memory; ncu counts each of them apart.
enum class GlobalAccess : uint8_t {
  kLoad,       // ld: "op_ld"
  kStore,      // st: "op_st"
  kAtomic,     // atom: "op_atom"
  kReduction,  // red: "op_red"
  kAsyncCopy,  // cp.async: "op_ldgsts"
};
/// "load", "store", "atomic", "reduction", "async copy".
std::string_view name(GlobalAccess access);

/// What one instruction's accesses took of global memory over a launch, in sectors of 32 bytes (bulk and tensor
/// copies, whose requests are the unit's, and wmma.load and wmma.store are not counted). Of a single request:
/// imbrex/inspect/sectors.h.
struct SectorUse {
  CodePlace place;
  GlobalAccess access = GlobalAccess::kLoad;
  int bytes = 0;            // of a lane
  int64_t requests = 0;     // times a warp executed it, with at least one lane
  int64_t sectors = 0;      // that those requests touched: different ones within a request
  int64_t ideal = 0;        // that they would touch if their different bytes lay side by side
  int64_t bytes_asked = 0;  // by all lanes
};

/// The result of a launch.
struct Report {
  std::vector<Finding> findings;  // what is wrong, in order of first occurrence
  std::vector<Finding> notes;     // of Severity::kNote; none where Options::strictness is kStrict
  Statistics statistics;
  std::string printf_output;                 // in CTA order; within a CTA as it was printed
  bool completed = false;                    // every thread ran to its end (findings or not)
  int64_t ctas_left_out = 0;                 // by Options::sampled_ctas: what they compute is missing
  std::shared_ptr<const Timeline> timeline;  // when Options::timeline asked for it and the launch completed
  std::vector<BankUse> banks;                // when Options::count_banks asked for it, by PTX line
  std::vector<SectorUse> sectors;            // when Options::count_sectors asked for it, by PTX line

  /// Ran to its end with nothing found; notes do not count.
  bool clean() const { return completed && findings.empty(); }
  /// All findings, then all notes, as text; "" when there are none.
  std::string format() const;
  /// Throws imbrex::DeviceError with the findings unless clean().
  void expect_clean() const;
};

}  // namespace imbrex::vgpu
