// SPDX-License-Identifier: Apache-2.0
// Collectives of a warp: shfl, vote, match, redux, elect, activemask, bar.warp.sync; full and partial masks.
#include <fmt/format.h>

#include <functional>

#include "families.h"

namespace imbrex::conformance {
namespace {

constexpr uint32_t kMasks[] = {0xFFFFFFFF, 0x0000FFFF, 0x80000001, 0x12345678, 0x00000100};

// `insn` may use %r4 %r5 %rd0 (random, in few values), %p1 (a random bit); {} is the member mask. Lanes
// outside of it do not execute it. Results: %r20, %p2.
void add(Kernels& out, const std::string& insn, bool has_register, bool has_predicate,
         const std::function<bool(uint32_t mask)>& is_defined = nullptr) {
  for (uint32_t mask : kMasks) {
    if (is_defined && !is_defined(mask)) continue;
    const std::string text = fmt::format(fmt::runtime(insn), fmt::format("{:#x}", mask));
    Frame frame{.ctas = 4, .in_stride = 24, .out_stride = 8};
    frame.body = load_registers(4, 2) + "  ld.global.b64 %rd0, [%in+8];\n  ld.global.b32 %r6, [%in+16];\n" +
                 fmt::format(R"(  and.b32 %r6, %r6, 1;
  setp.ne.u32 %p1, %r6, 0;
  setp.ne.u32 %p2, %r6, %r6;
  mov.u32 %r20, 0xdeadbeef;
  mov.u32 %r7, {:#x};
  shr.u32 %r7, %r7, %lane;
  and.b32 %r7, %r7, 1;
  setp.eq.u32 %p0, %r7, 0;
  @%p0 bra skip;
  {};
skip:
)",
                             mask, text);
    if (has_register) frame.body += "  st.global.b32 [%out], %r20;\n";
    if (has_predicate) frame.body += "  selp.b32 %r8, 1, 0, %p2;\n  st.global.b32 [%out+4], %r8;\n";
    Random random(text);
    std::vector<uint8_t> input;
    for (int64_t cta = 0; cta < frame.ctas; ++cta)
      for (int lane = 0; lane < 32; ++lane) {
        // The first CTA's values are all equal, the others' few, then many.
        const uint64_t values = cta == 0 ? 1 : cta == 1 ? 3 : cta == 2 ? 40 : ~uint64_t{0};
        uint64_t words[3] = {random.below(values), random.below(values), random.below(values)};
        if (cta == 2) words[0] *= 0x01010101, words[1] *= 0x9E3779B9;
        if (cta < 3) words[2] = cta == 0 ? 1 : random.next();
        const uint32_t parts[6] = {static_cast<uint32_t>(words[0]), static_cast<uint32_t>(words[1]),
                                   static_cast<uint32_t>(words[0]), static_cast<uint32_t>(words[1] >> 1),
                                   static_cast<uint32_t>(words[2]), 0};
        for (uint32_t part : parts)
          for (int b = 0; b < 4; ++b) input.push_back(static_cast<uint8_t>(part >> 8 * b));
      }
    out.push_back(make_kernel("collectives", text, frame, std::move(input)));
  }
}

constexpr uint32_t kClamps[] = {0x1F, 0x0, 0x81F, 0x180F, 0x1C03};

/// Whether no member of the mask reads a lane outside of it, which gives an undefined value.
bool reads_only_members(const std::string& mode, uint32_t by, uint32_t clamp, uint32_t mask) {
  const uint32_t segments = clamp >> 8 & 31;
  for (uint32_t lane = 0; lane < 32; ++lane) {
    if ((mask >> lane & 1) == 0) continue;
    const uint32_t least = lane & segments, most = least | (clamp & 31 & ~segments);
    const uint32_t from = mode == "up"     ? lane - by
                          : mode == "down" ? lane + by
                          : mode == "bfly" ? lane ^ by
                                           : least | (by & ~segments & 31);
    const bool is_inside =
        mode == "up" ? static_cast<int32_t>(from) >= static_cast<int32_t>(most) : from <= most;
    if (is_inside && (mask >> (from & 31) & 1) == 0) return false;
  }
  return true;
}

}  // namespace

void add_collectives(Kernels& out) {
  for (const char* mode : {"up", "down", "bfly", "idx"}) {
    for (uint32_t clamp : kClamps)
      for (uint32_t by : {0u, 1u, 3u, 16u, 31u})
        add(out, fmt::format("shfl.sync.{}.b32 %r20|%p2, %r4, {}, {:#x}, {{}}", mode, by, clamp), true, true,
            [&](uint32_t mask) { return reads_only_members(mode, by, clamp, mask); });
    for (uint32_t clamp : kClamps) {
      Frame frame{.ctas = 4, .in_stride = 12, .out_stride = 8};
      const std::string text =
          fmt::format("shfl.sync.{}.b32 %r20|%p2, %r4, %r5, {:#x}, 0xffffffff", mode, clamp);
      frame.body =
          load_registers(4, 2) + "  " + text +
          ";\n  selp.b32 %r8, 1, 0, %p2;\n  st.global.b32 [%out], %r20;\n  st.global.b32 [%out+4], %r8;\n";
      Random random(text);
      out.push_back(make_kernel("collectives", text, frame, random_bytes(4 * 32 * 12, random)));
      Frame short_form = frame;
      const std::string without =
          fmt::format("shfl.sync.{}.b32 %r20, %r4, %r5, {:#x}, 0xffffffff", mode, clamp);
      short_form.body = load_registers(4, 2) + "  " + without + ";\n  st.global.b32 [%out], %r20;\n";
      out.push_back(make_kernel("collectives", without, short_form, random_bytes(4 * 32 * 12, random)));
    }
  }
  for (const char* mode : {"all", "any", "uni"}) {
    add(out, fmt::format("vote.sync.{}.pred %p2, %p1, {{}}", mode), false, true);
    add(out, fmt::format("vote.sync.{}.pred %p2, !%p1, {{}}", mode), false, true);
  }
  add(out, "vote.sync.ballot.b32 %r20, %p1, {}", true, false);
  add(out, "vote.sync.ballot.b32 %r20, !%p1, {}", true, false);
  add(out, "match.any.sync.b32 %r20, %r4, {}", true, false);
  add(out, "match.any.sync.b64 %r20, %rd0, {}", true, false);
  add(out, "match.all.sync.b32 %r20|%p2, %r4, {}", true, true);
  add(out, "match.all.sync.b64 %r20|%p2, %rd0, {}", true, true);
  add(out, "match.all.sync.b32 %r20, %r4, {}", true, false);
  for (const char* op : {"add", "min", "max"})
    for (const char* type : {"u32", "s32"})
      add(out, fmt::format("redux.sync.{}.{} %r20, %r5, {{}}", op, type), true, false);
  for (const char* op : {"and", "or", "xor"})
    add(out, fmt::format("redux.sync.{}.b32 %r20, %r5, {{}}", op), true, false);
  add(out, "elect.sync %r20|%p2, {}", true, true);
  add(out, "elect.sync _|%p2, {}", false, true);
  add(out, "bar.warp.sync {}; mov.u32 %r20, %r4", true, false);
  add(out, "bar.warp.sync {}; activemask.b32 %r20", true, false);
}

}  // namespace imbrex::conformance
