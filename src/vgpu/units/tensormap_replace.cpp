// SPDX-License-Identifier: Apache-2.0
// Tensor maps changed on the device: tensormap.replace rewrites a field, tensormap.cp_fenceproxy copies a map
// out of shared memory and makes it known to the units.
#include <fmt/format.h>

#include <cstring>

#include "vgpu/machine/access.h"
#include "vgpu/memory/raced_bytes.h"
#include "vgpu/memory/tensor_map.h"
#include "vgpu/program/decode.h"

namespace imbrex::vgpu {
namespace {

using ptx::Mod;
using ptx::Op;
using ptx::ScalarType;

enum class Field : uint8_t {
  kAddress,
  kRank,
  kBox,
  kDim,
  kStride,
  kElementStride,
  kType,
  kInterleave,
  kSwizzle,
  kAtomicity,
  kFill,
};

struct ReplaceForm {
  AddressSource at;
  Field field;
  bool has_index = false;  // Instruction::b
  bool is_64 = false;
};

// Puts `value` into a field. False when the field does not take it.
bool replace(TensorMapFields& map, Field field, uint32_t index, uint64_t value) {
  if (index >= static_cast<uint32_t>(kMaxTensorRank)) return false;
  const auto word = static_cast<uint32_t>(value);
  switch (field) {
    case Field::kAddress:
      map.address = value;
      return true;
    case Field::kRank:
      map.rank = static_cast<int>(word) + 1;
      return word < kMaxTensorRank;
    case Field::kBox:
      map.box[index] = word;
      return true;
    case Field::kDim:
      map.dims[index] = word;
      return true;
    case Field::kElementStride:
      map.element_strides[index] = word;
      return true;
    // Strides are those of dimensions 1 ...
    case Field::kStride:
      if (index + 1 >= static_cast<uint32_t>(kMaxTensorRank)) return false;
      map.strides[index + 1] = value;
      return true;
    case Field::kType:
      for (int t = 0; t <= static_cast<int>(TensorMapType::kPacked16U6Padded); ++t)
        if (facts(static_cast<TensorMapType>(t)).replace_value == value) {
          map.type = static_cast<TensorMapType>(t);
          return true;
        }
      return false;
    case Field::kInterleave:
      map.interleave = static_cast<TensorMapInterleave>(word);
      return word <= 2;
    case Field::kSwizzle: {
      constexpr Swizzle kModes[] = {Swizzle::kNone, Swizzle::k32B, Swizzle::k64B, Swizzle::k128B};
      if (word > 3) return false;
      map.swizzle = kModes[word];
      return true;
    }
    case Field::kAtomicity: {
      constexpr Swizzle kAtoms[] = {Swizzle::k128B, Swizzle::k128BAtom32B, Swizzle::k128BAtom32BFlip8B,
                                    Swizzle::k128BAtom64B};
      if (word > 3 || (word != 0 && facts(map.swizzle).span != 128)) return false;
      if (facts(map.swizzle).span == 128) map.swizzle = kAtoms[word];
      return true;
    }
    case Field::kFill:
      map.fill_with_nan = word != 0;
      return word <= 1;
  }
  return false;
}

Step exec_replace(Warp& warp, const Instruction& insn, Mask active) {
  const ReplaceForm& form = insn.form<ReplaceForm>();
  Cluster& cluster = warp.cta().cluster();
  for_each_lane(active, [&](int lane) {
    const Who who = warp.thread(insn, lane);
    Place place;
    if (!locate(cluster, who, form.at.space, warp.address(form.at, lane), kTensorMapBytes, 128,
                AccessKind::kAtomic, place))
      return;
    touch(cluster, who, place, kTensorMapBytes, AccessKind::kRead);
    TensorMap map;
    read_bytes(map.words.data(), place.host, kTensorMapBytes);
    DecodedTensorMap decoded = decode_for_replace(map);
    const uint64_t value = form.is_64 ? warp.reg<uint64_t>(insn.a)[lane] : warp.reg<uint32_t>(insn.a)[lane];
    const uint32_t index = form.has_index ? warp.reg<uint32_t>(insn.b)[lane] : 0;
    if (!decoded.problem.empty() || !replace(decoded.fields, form.field, index, value)) {
      cluster.report_fatal(FindingKind::kIllegalInstruction, who, place.address,
                           decoded.problem.empty()
                               ? fmt::format("tensormap.replace: the field does not take {:#x}", value)
                               : "tensormap.replace: " + decoded.problem);
      return;
    }
    map = encode(decoded.fields);
    write_bytes(place.host, map.words.data(), kTensorMapBytes);
    touch(cluster, who, place, kTensorMapBytes, AccessKind::kWrite);
    cluster.note_progress();
  });
  return Step::kNext;
}

struct CopyForm {
  AddressSource to, from;
};

// The lanes together copy one map.
Step exec_copy(Warp& warp, const Instruction& insn, Mask active) {
  if (const Step step = warp.gather(active, kAllLanes); step != Step::kNext) return step;
  const CopyForm& form = insn.form<CopyForm>();
  Cluster& cluster = warp.cta().cluster();
  const int lane = first_lane(active);
  const Who who = warp.thread(insn, lane);
  Place to, from;
  if (!locate(cluster, who, form.from.space, warp.address(form.from, lane), kTensorMapBytes, 128,
              AccessKind::kRead, from) ||
      !locate(cluster, who, form.to.space, warp.address(form.to, lane), kTensorMapBytes, 128,
              AccessKind::kWrite, to))
    return Step::kNext;
  touch(cluster, who, from, kTensorMapBytes, AccessKind::kRead);
  TensorMap map;
  read_bytes(map.words.data(), from.host, kTensorMapBytes);
  write_bytes(to.host, map.words.data(), kTensorMapBytes);
  touch(cluster, who, to, kTensorMapBytes, AccessKind::kWrite);
  cluster.note_progress();
  return Step::kNext;
}

Field field_of(const Decoder& decoder) {
  constexpr std::pair<Mod, Field> kFields[] = {
      {Mod::global_address, Field::kAddress},
      {Mod::rank, Field::kRank},
      {Mod::box_dim, Field::kBox},
      {Mod::global_dim, Field::kDim},
      {Mod::global_stride, Field::kStride},
      {Mod::element_stride, Field::kElementStride},
      {Mod::elemtype, Field::kType},
      {Mod::interleave_layout, Field::kInterleave},
      {Mod::swizzle_mode, Field::kSwizzle},
      {Mod::swizzle_atomicity, Field::kAtomicity},
      {Mod::fill_mode, Field::kFill},
  };
  for (const auto& [word, field] : kFields)
    if (decoder.has(word)) return field;
  decoder.refuse("no field is named");
}

}  // namespace

bool decode_tensormap(Decoder& decoder, Instruction& out) {
  switch (decoder.op()) {
    case Op::tensormap_replace: {
      ReplaceForm form{decoder.address(0), field_of(decoder)};
      form.has_index = decoder.operand_count() == 3;
      form.is_64 = decoder.has_type(ScalarType::b64);
      const ScalarType type = form.is_64 ? ScalarType::b64 : ScalarType::b32;
      if (form.has_index) out.b = decoder.source(1, ScalarType::u32);
      out.a = decoder.source(form.has_index ? 2 : 1, type);
      out.extra = decoder.keep(form);
      set_body(out, exec_replace);
      return true;
    }
    case Op::tensormap_cp_fenceproxy:
      if (decoder.immediate(2, "size") != kTensorMapBytes) decoder.refuse("the size is 128");
      out.extra = decoder.keep(CopyForm{decoder.address_in(decoder.operand(0), Space::kGlobal),
                                        decoder.address_in(decoder.operand(1), Space::kSharedCta)});
      set_body(out, exec_copy);
      return true;
    default:
      return false;
  }
}

}  // namespace imbrex::vgpu
