// SPDX-License-Identifier: Apache-2.0
// What the families of asynchronous instructions share: operands lane by lane, findings in one line, accesses
// of units on behalf of a thread.
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "imbrex/core/dtype.h"
#include "vgpu/machine/access.h"
#include "vgpu/program/decode.h"

namespace imbrex::vgpu {

/// The address a lane gives.
inline uint64_t address_of(Warp& warp, const AddressSource& source, int lane) {
  if (source.base_is_64) return warp.reg<uint64_t>(source.base)[lane] + static_cast<uint64_t>(source.offset);
  return static_cast<uint32_t>(warp.reg<uint32_t>(source.base)[lane] + static_cast<uint64_t>(source.offset));
}

/// The lanes in which a predicate operand holds.
inline Mask lanes_where(Warp& warp, const PredicateSource& source) {
  return warp.predicate(source.slot) ^ source.flip;
}

/// What decoding asks about operands and words.
bool is_predicate(Decoder& decoder, const ptx::Operand& operand);
bool has_type(const Decoder& decoder, ptx::ScalarType type);
/// 80, 90, 100: the architecture the program is made for.
int target_sm(Decoder& decoder);
/// An address operand of an instruction that names several state spaces: this one is in `space`.
inline AddressSource address_in(Decoder& decoder, const ptx::Operand& operand, Space space) {
  AddressSource source = decoder.address(operand);
  source.space = space;
  return source;
}
/// A register that an asynchronous unit writes some time after the instruction. It counts as written when the
/// body says so: its dense number goes to `numbers`.
Slot late_destination(Decoder& decoder, const ptx::Operand& operand, std::vector<uint32_t>& numbers);

/// The instruction's operand structure, which its decode function kept.
template <class T>
const T& form_of(const Instruction& insn) {
  return *static_cast<const T*>(insn.extra);
}

inline Who thread_of(Warp& warp, const Instruction& insn, int lane) {
  return {&warp.cta(), warp.index(), lane, &insn, ""};
}
/// Threads of a warp that do something together.
inline Who threads_of(Warp& warp, const Instruction& insn, Mask active) {
  return {&warp.cta(), warp.index(), first_lane(active), &insn, "", active};
}
/// The same thread, a unit acting for it.
inline Who unit_for(Who thread, const char* unit) {
  thread.unit = unit;
  return thread;
}

/// A finding of one line, with a remedy. Counted silently when it is there already.
inline void report(Cluster& cluster, FindingKind kind, const Who& who, uint64_t address, std::string message,
                   std::string hint = "") {
  Finding* finding = cluster.log().open(kind, who, address);
  if (finding == nullptr) return;
  finding->message = std::move(message);
  finding->hint = std::move(hint);
}

/// report() for what the hardware ends the kernel for: the launch stops.
inline void report_fatal(Cluster& cluster, FindingKind kind, const Who& who, uint64_t address,
                         std::string message, std::string hint = "") {
  report(cluster, kind, who, address, std::move(message), std::move(hint));
  cluster.stop();
}

inline const CheckSet& checks_of(Cluster& cluster) { return cluster.launch().options.checks; }

/// Tells the checkers that a unit touches bytes whose address was found good when the work was submitted.
/// Units run outside the templated bodies, so the policy is asked at run time.
inline void touch(Cluster& cluster, const Who& who, const Place& place, uint32_t bytes, AccessKind kind) {
  if (checks_of(cluster).any()) Checked::touched(cluster, who, place, bytes, kind);
}

inline Place shared_place(Cta& cta, uint32_t offset) {
  return {cta.shared().at(offset), Space::kSharedCta, &cta, nullptr, offset};
}
inline Place global_place(Cluster& cluster, uint64_t address) {
  return {cluster.launch().memory.host(address), Space::kGlobal, nullptr, nullptr, address};
}

/// The type that mma.sync and wgmma multiply under this name, where it fills whole bytes.
std::optional<DataType> product_type(ptx::ScalarType type);

/// How findings print a shared address: "shared 0x408", "shared 0x408 of CTA rank 1".
std::string shared_text(const Who& who, const Cta& owner, uint32_t offset);

}  // namespace imbrex::vgpu
