// SPDX-License-Identifier: Apache-2.0
// Rules of PTX that chips keep less strictly. Apart from the report that names them, so that a new one compiles little.
#pragma once

#include <cstdint>
#include <string_view>

namespace imbrex::vgpu {

/// Rules of PTX that every chip keeps less strictly, and that established libraries therefore bend.
enum class BentRule : uint8_t {
  kNone,
  kEqualValues,       // unordered stores of the same value
  kRepeatedInit,      // lanes of one instruction initialise an mbarrier alike
  kReadBeforeCas,     // a plain read begins a loop of compare-and-swap
  kArrivalScope,      // an arrival or a wait of CTA scope, across a cluster
  kRelaxedWait,       // asynchronous work behind a .relaxed wait
  kTensorFence,       // tcgen05.fence left out beside a synchronisation
  kRegisterWait,      // registers of tcgen05.ld or wgmma used before the wait
  kExitBeforeRead,    // exit before the sources of bulk stores have been read
  kArrivalAhead,      // a CTA arrives at its peer's mbarrier before the peer has seen the phase before end
  kAtomicPastEnd,     // the word of a compare-and-swap reaches over the end of an allocation
  kWarpCollective,    // a lane overwrites what others have read or written before a collective of the warp
  kUnwrittenPadding,  // bytes of global memory that nobody has written, beside others that somebody has
  kCount,
};
/// The name a rule is printed under: "equal-values", "relaxed-wait", ...; "" for kNone.
std::string_view name(BentRule rule);
/// What PTX says, and what chips do: one sentence.
std::string_view explain(BentRule rule);

}  // namespace imbrex::vgpu
