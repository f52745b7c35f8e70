// SPDX-License-Identifier: Apache-2.0
// wgmma: every n, every type, A in shared memory and in registers, both majors, every swizzle. Shared memory
// is full of values of the operands' types, so that wherever a descriptor points the elements read are known.
#include <fmt/format.h>

#include "families.h"

namespace imbrex::conformance {
namespace {

constexpr int kABytes = 8192;  // room for 64 rows of 128 bytes

struct Operand {
  bool is_mn_major = false;
  int swizzle = 0;  // driver's: 0 none, 1 32B, 2 64B, 3 128B
  int start = 0;    // bytes added to the start address
  int base_offset = 0;
  int gap = 0;  // bytes between the groups beyond the dense ones

  std::string text() const {
    constexpr const char* kNames[] = {"none", "32B", "64B", "128B"};
    std::string out = fmt::format("{}-major {}", is_mn_major ? "MN" : "K", kNames[swizzle]);
    if (start != 0) out += fmt::format(" +{}", start);
    if (base_offset != 0) out += fmt::format(" base {}", base_offset);
    if (gap != 0) out += fmt::format(" gap {}", gap);
    return out;
  }
  int span() const { return swizzle == 0 ? 16 : 16 << swizzle; }
  // Leading and stride byte offsets of the dense layout (with the gap).
  uint64_t descriptor() const {
    const int w = span();
    uint64_t leading = 1, stride = 0;
    if (swizzle == 0) {
      leading = 128 / 16, stride = (256 + static_cast<uint64_t>(gap)) / 16;
    } else if (!is_mn_major) {
      stride = static_cast<uint64_t>(8 * w + gap) / 16;
    } else {
      stride = static_cast<uint64_t>(8 * w) / 16, leading = static_cast<uint64_t>(16 * w + gap) / 16;
    }
    constexpr uint64_t kCodes[] = {0, 3, 2, 1};
    return leading << 16 | stride << 32 | static_cast<uint64_t>(base_offset) << 49 | kCodes[swizzle] << 62;
  }
  // Bytes from the start to the end of what `mn` rows read.
  int bytes(int mn, int element) const {
    if (swizzle == 0) return (is_mn_major ? (mn * element + 15) / 16 : (mn + 7) / 8) * (256 + gap);
    if (!is_mn_major) return (mn + 7) / 8 * (8 * span() + gap);
    return (mn * element + span() - 1) / span() * (16 * span() + gap);
  }
};

struct Wgmma {
  int n;
  std::string d, a, b;
  Profile profile = Profile::kNearOne;
  bool a_in_registers = false;
  Operand a_at = {}, b_at = {};
  bool negate_a = false, negate_b = false;
  int adds = 2;  // scale-d: 0, 1 as immediates; 2 a predicate that is true, 3 one that is false
  bool saturate = false;
};

void add(Kernels& out, const Wgmma& f) {
  const bool is_integer = f.d == "s32", is_bits = f.a == "b1", is_16 = bits_of_type(f.a) == 16;
  const int k = 256 / bits_of_type(f.a), element = std::max(1, bits_of_type(f.a) / 8);
  const std::string insn = fmt::format("wgmma.mma_async.sync.aligned.m64n{}k{}.{}.{}.{}{}{}", f.n, k, f.d,
                                       f.a, f.b, is_bits ? ".and.popc" : "", f.saturate ? ".satfinite" : "");
  const int results = f.d == "f16" ? f.n / 4 : f.n / 2;
  std::string name =
      fmt::format("{} A {} B {} values {}", insn, f.a_in_registers ? "registers" : f.a_at.text(),
                  f.b_at.text(), static_cast<int>(f.profile));
  if (f.negate_a) name += " -A";
  if (f.negate_b) name += " -B";
  if (f.adds != 2) name += fmt::format(" scale-d {}", f.adds == 3 ? "false" : std::to_string(f.adds));

  const int b_bytes = (f.b_at.bytes(f.n, element) + f.b_at.start + 1023) / 1024 * 1024;
  const int tile = kABytes + b_bytes;
  Frame frame{.threads = 128, .tile_bytes = tile, .in_stride = 4 * (results + 4), .out_stride = 4 * results};
  // The tile's values come after the registers'.
  const int tile_at = frame.in_stride * frame.threads;
  frame.body = fill_tile(frame, tile, tile_at) + load_registers(0, results + 4) +
               fmt::format(R"(  fence.proxy.async;
  bar.sync 0;
  and.b32 %r380, %tile, 0x3ffff;
  add.u32 %r381, %r380, {};
  add.u32 %r380, %r380, {};
  shr.u32 %r380, %r380, 4;
  shr.u32 %r381, %r381, 4;
  cvt.u64.u32 %rd0, %r380;
  cvt.u64.u32 %rd1, %r381;
  or.b64 %rd0, %rd0, {:#x};
  or.b64 %rd1, %rd1, {:#x};
  setp.{}.u32 %p0, %thread, 1000;
  wgmma.fence.sync.aligned;
)",
                           kABytes + f.b_at.start, f.a_at.start, f.a_at.descriptor(), f.b_at.descriptor(),
                           f.adds == 3 ? "gt" : "lt");
  std::string operands = fmt::format("{}, {}, %rd1, {}", registers(0, results),
                                     f.a_in_registers ? registers(results, 4) : "%rd0",
                                     f.adds >= 2 ? "%p0" : std::to_string(f.adds));
  if (!is_integer) operands += fmt::format(", {}, {}", f.negate_a ? -1 : 1, f.negate_b ? -1 : 1);
  if (is_16 && !f.a_in_registers) operands += fmt::format(", {}", f.a_at.is_mn_major ? 1 : 0);
  if (is_16) operands += fmt::format(", {}", f.b_at.is_mn_major ? 1 : 0);
  frame.body +=
      fmt::format("  {} {};\n  wgmma.commit_group.sync.aligned;\n  wgmma.wait_group.sync.aligned 0;\n", insn,
                  operands) +
      store_registers(0, results);
  Random random(name);
  std::vector<uint8_t> input;
  for (int thread = 0; thread < frame.threads; ++thread) {
    append_values(input, f.d, f.profile, results * 32 / bits_of_type(f.d), random);
    append_values(input, f.a, f.profile, 128 / bits_of_type(f.a), random);
  }
  append_values(input, f.a, f.profile, kABytes * 8 / bits_of_type(f.a), random);
  append_values(input, f.b, f.profile, b_bytes * 8 / bits_of_type(f.b), random);
  out.push_back(make_kernel("wgmma", name, frame, std::move(input)));
}

Profile profile_of(int i) { return static_cast<Profile>(i % kProfiles); }

struct Types {
  const char *d, *a, *b;
};

}  // namespace

void add_wgmma(Kernels& out) {
  const Types floats[] = {{"f32", "f16", "f16"},   {"f16", "f16", "f16"},   {"f32", "bf16", "bf16"},
                          {"f32", "tf32", "tf32"}, {"f32", "e4m3", "e4m3"}, {"f32", "e5m2", "e5m2"},
                          {"f32", "e4m3", "e5m2"}, {"f32", "e5m2", "e4m3"}, {"f16", "e4m3", "e4m3"},
                          {"f16", "e5m2", "e5m2"}, {"f16", "e4m3", "e5m2"}, {"f16", "e5m2", "e4m3"}};
  const Types integers[] = {{"s32", "s8", "s8"},
                            {"s32", "s8", "u8"},
                            {"s32", "u8", "s8"},
                            {"s32", "u8", "u8"},
                            {"s32", "b1", "b1"}};
  // Every n, for one type of each kind of product.
  for (int n = 8; n <= 256; n += 8) {
    for (int t : {0, 1, 2, 3, 4, 8}) add(out, {n, floats[t].d, floats[t].a, floats[t].b, profile_of(n / 8)});
    if (n > 32 && n % 16 != 0) continue;
    add(out, {n, "s32", "s8", "s8", profile_of(n / 8)});
    add(out, {n, "s32", "b1", "b1", Profile::kAnyBits});
  }
  // Every type on values of every kind, A from both places.
  for (const Types& t : floats)
    for (int p = 0; p < kProfiles; ++p)
      for (bool in_registers : {false, true}) add(out, {24, t.d, t.a, t.b, profile_of(p), in_registers});
  for (const Types& t : integers)
    for (Profile p : {Profile::kAnyBits, Profile::kHuge})
      for (bool in_registers : {false, true}) {
        add(out, {24, t.d, t.a, t.b, p, in_registers});
        if (std::string(t.a) != "b1")
          add(out, {.n = 24,
                    .d = t.d,
                    .a = t.a,
                    .b = t.b,
                    .profile = p,
                    .a_in_registers = in_registers,
                    .saturate = true});
      }
  // Layouts.
  for (const Types& t : {floats[0], floats[2], floats[3], floats[4], integers[0]})
    for (int a_swizzle = 0; a_swizzle <= 3; ++a_swizzle)
      for (int b_swizzle = 0; b_swizzle <= 3; ++b_swizzle)
        for (int majors = 0; majors < (bits_of_type(t.a) == 16 ? 4 : 1); ++majors) {
          const Operand a{.is_mn_major = (majors & 1) != 0, .swizzle = a_swizzle};
          const Operand b{.is_mn_major = (majors & 2) != 0, .swizzle = b_swizzle};
          add(out, {.n = 40 + (t.d[0] == 's' ? 8 : 0),
                    .d = t.d,
                    .a = t.a,
                    .b = t.b,
                    .profile = Profile::kAnyBits,
                    .a_at = a,
                    .b_at = b});
        }
  for (int swizzle = 1; swizzle <= 3; ++swizzle)
    for (int start : {16, 32, 64, 96, 128, 384}) {
      const Operand at{.swizzle = swizzle, .start = start};
      if (start < 128 && start + 32 > 16 << swizzle) continue;
      add(out, {.n = 48,
                .d = "f32",
                .a = "bf16",
                .b = "bf16",
                .a_at = {.swizzle = swizzle, .start = start / 128 * 128},
                .b_at = at});
      if (start >= 128) continue;
      add(out, {.n = 48, .d = "f32", .a = "bf16", .b = "bf16", .a_at = at, .b_at = {.swizzle = swizzle}});
    }
  for (int swizzle = 1; swizzle <= 3; ++swizzle)
    for (int base = 1; base <= 7; base += 2)
      add(out, {.n = 48,
                .d = "f32",
                .a = "f16",
                .b = "f16",
                .a_at = {.swizzle = swizzle, .base_offset = base},
                .b_at = {.swizzle = swizzle, .start = 128, .base_offset = base}});
  for (int swizzle = 0; swizzle <= 3; ++swizzle)
    for (bool mn : {false, true})
      add(out, {.n = 48,
                .d = "f32",
                .a = "f16",
                .b = "f16",
                .b_at = {.is_mn_major = mn, .swizzle = swizzle, .gap = 128}});
  // Signs and the addend.
  for (const Types& t : floats)
    for (int signs = 1; signs < 4; ++signs)
      add(out, {.n = 16,
                .d = t.d,
                .a = t.a,
                .b = t.b,
                .profile = Profile::kSpecial,
                .negate_a = (signs & 1) != 0,
                .negate_b = (signs & 2) != 0});
  for (const Types& t : {floats[0], floats[1], floats[4], integers[0]})
    for (int adds : {0, 1, 3})
      add(out, {.n = 16, .d = t.d, .a = t.a, .b = t.b, .profile = Profile::kSpecial, .adds = adds});
}

}  // namespace imbrex::conformance
