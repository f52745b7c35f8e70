// SPDX-License-Identifier: Apache-2.0
// Products with a sparse A: mma.sp of every shape and type of sm_90a, wgmma.mma_async.sp. The metadata is of every
// pattern that means something.
#include <fmt/format.h>

#include <algorithm>

#include "families.h"

namespace imbrex::conformance {
namespace {

constexpr const char* kFamily = "sparse products";

// Which elements of four (of two, of 32 bits) are stored.
constexpr uint32_t kAscending[] = {0b0100, 0b1000, 0b1100, 0b1001, 0b1101, 0b1110};
constexpr uint32_t kDescending[] = {0b0001, 0b0010, 0b0011, 0b0110, 0b0111, 0b1011};

// Eight codes.
void append_metadata(std::vector<uint8_t>& bytes, const std::string& type, bool any_order, Random& random) {
  uint32_t word = 0;
  for (int i = 0; i < 8; ++i) {
    uint32_t code = random.below(2) == 0 ? 0b0100 : 0b1110;
    if (type != "tf32") {
      const uint64_t pick = random.below(6);
      code = any_order && random.below(2) == 0 ? kDescending[pick] : kAscending[pick];
    }
    word |= code << 4 * i;
  }
  for (int b = 0; b < 4; ++b) bytes.push_back(static_cast<uint8_t>(word >> 8 * b));
}

// mma.sp ----------------------------------------------------------------------------------------------------

struct Mma {
  int k;
  std::string d, a, b;
  int selector = 0;
  bool ordered = true;
  std::string saturate = {};
};

constexpr int kRounds = 2;  // CTAs a profile

void add_mma(Kernels& out, const Mma& f) {
  const std::string name =
      fmt::format("mma.sp{}.sync.aligned.m16n8k{}.row.col.{}.{}.{}.{}{} selector {}",
                  f.ordered ? "::ordered_metadata" : "", f.k, f.d, f.a, f.b, f.d, f.saturate, f.selector);
  const auto count = [&](int elements, const std::string& type) {
    return elements * bits_of_type(type) / 32 / 32;
  };
  const int a = count(16 * f.k / 2, f.a), b = count(f.k * 8, f.b), c = count(16 * 8, f.d);
  const int meta = a + b + c, d = meta + 1;
  Frame frame{.ctas = kProfiles * kRounds, .in_stride = 4 * d, .out_stride = 4 * c};
  frame.body =
      load_registers(0, d) +
      fmt::format("  {} {}, {}, {}, {}, %r{}, {};\n", name.substr(0, name.find(' ')), registers(d, c),
                  registers(0, a), registers(a, b), registers(a + b, c), meta, f.selector) +
      store_registers(d, c);
  Random random(name);
  std::vector<uint8_t> input;
  for (int cta = 0; cta < frame.ctas; ++cta)
    for (int thread = 0; thread < 32; ++thread) {
      const auto profile = static_cast<Profile>(cta % kProfiles);
      append_values(input, f.a, profile, 16 * f.k / 2 / 32, random);
      append_values(input, f.b, profile, f.k * 8 / 32, random);
      append_values(input, f.d, profile, 16 * 8 / 32, random);
      append_metadata(input, f.a, !f.ordered, random);
    }
  out.push_back(make_kernel(kFamily, name, frame, std::move(input)));
}

void add_mma_forms(Kernels& out) {
  for (bool ordered : {true, false}) {
    for (const char* d : {"f32", "f16"}) {
      for (int selector = 0; selector < 4; ++selector) add_mma(out, {16, d, "f16", "f16", selector, ordered});
      for (int selector = 0; selector < 2; ++selector) add_mma(out, {32, d, "f16", "f16", selector, ordered});
    }
    for (int selector = 0; selector < 4; ++selector) {
      add_mma(out, {16, "f32", "bf16", "bf16", selector, ordered});
      add_mma(out, {8, "f32", "tf32", "tf32", selector, ordered});
    }
    for (int selector = 0; selector < 2; ++selector) {
      add_mma(out, {32, "f32", "bf16", "bf16", selector, ordered});
      add_mma(out, {16, "f32", "tf32", "tf32", selector, ordered});
    }
    for (const char* a : {"e4m3", "e5m2"})
      for (const char* b : {"e4m3", "e5m2"}) add_mma(out, {64, "f32", a, b, 0, ordered});
    for (const char* saturate : {"", ".satfinite"}) {
      for (const char* a : {"s8", "u8"})
        for (const char* b : {"s8", "u8"}) {
          for (int selector = 0; selector < 2; ++selector)
            add_mma(out, {32, "s32", a, b, selector, ordered, saturate});
          add_mma(out, {64, "s32", a, b, 0, ordered, saturate});
        }
      for (const char* a : {"s4", "u4"})
        for (const char* b : {"s4", "u4"}) {
          for (int selector = 0; selector < 2; ++selector)
            add_mma(out, {64, "s32", a, b, selector, ordered, saturate});
          add_mma(out, {128, "s32", a, b, 0, ordered, saturate});
        }
    }
  }
}

// wgmma.sp --------------------------------------------------------------------------------------------------

struct Wgmma {
  int n;
  std::string d, a, b;
  Profile profile = Profile::kNearOne;
  bool a_in_registers = false;
  int selector = 0;
  bool a_is_mn_major = false, b_is_mn_major = false;
  bool negate_a = false, negate_b = false, adds = true, saturate = false;
};

// K-major operands without a swizzle lie as core matrices of 8 rows and 16 bytes, 128 bytes apart along K; the groups
// of rows follow each other. MN-major ones have the swizzle of 128 bytes, 64 rows in a line.
uint64_t descriptor_bits(bool is_mn_major, int row_bytes) {
  if (is_mn_major)
    return uint64_t{1024 / 16} << 32 | uint64_t(row_bytes / 2 * 128 / 16) << 16 | uint64_t{1} << 62;
  return uint64_t{128 / 16} << 16 | uint64_t(row_bytes * 8 / 16) << 32;
}

void add_wgmma(Kernels& out, const Wgmma& f) {
  const bool is_16 = bits_of_type(f.a) == 16, is_integer = f.d == "s32";
  const int k = 512 / bits_of_type(f.a);
  const std::string insn = fmt::format("wgmma.mma_async.sp.sync.aligned.m64n{}k{}.{}.{}.{}{}", f.n, k, f.d,
                                       f.a, f.b, f.saturate ? ".satfinite" : "");
  std::string name =
      fmt::format("{} A {}{} B {}-major selector {} values {}", insn, f.a_in_registers ? "registers" : "",
                  f.a_in_registers  ? ""
                  : f.a_is_mn_major ? "MN-major"
                                    : "K-major",
                  f.b_is_mn_major ? "MN" : "K", f.selector, static_cast<int>(f.profile));
  if (f.negate_a) name += " -A";
  if (f.negate_b) name += " -B";
  if (!f.adds) name += " without D";
  const int results = f.d == "f16" ? f.n / 4 : f.n / 2;
  const int a_bytes = 4096;  // 64 rows of 32 bytes, or 16 lines of k as 64 rows of two bytes
  const int b_bytes = (f.n + 63) / 64 * 64 * 64;
  Frame frame{.threads = 128,
              .tile_bytes = a_bytes + b_bytes,
              .in_stride = 4 * (results + 5),
              .out_stride = 4 * results};
  frame.body =
      fill_tile(frame, frame.tile_bytes, frame.in_stride * frame.threads) + load_registers(0, results + 5) +
      fmt::format(R"(  fence.proxy.async;
  bar.sync 0;
  and.b32 %r380, %tile, 0x3ffff;
  add.u32 %r381, %r380, {};
  shr.u32 %r380, %r380, 4;
  shr.u32 %r381, %r381, 4;
  cvt.u64.u32 %rd0, %r380;
  cvt.u64.u32 %rd1, %r381;
  or.b64 %rd0, %rd0, {:#x};
  or.b64 %rd1, %rd1, {:#x};
  wgmma.fence.sync.aligned;
)",
                  a_bytes, descriptor_bits(f.a_is_mn_major, 32), descriptor_bits(f.b_is_mn_major, 64));
  std::string operands =
      fmt::format("{}, {}, %rd1, %r{}, {}, {}", registers(0, results),
                  f.a_in_registers ? registers(results, 4) : "%rd0", results + 4, f.selector, f.adds ? 1 : 0);
  if (!is_integer) operands += fmt::format(", {}, {}", f.negate_a ? -1 : 1, f.negate_b ? -1 : 1);
  if (is_16 && !f.a_in_registers) operands += fmt::format(", {}", f.a_is_mn_major ? 1 : 0);
  if (is_16) operands += fmt::format(", {}", f.b_is_mn_major ? 1 : 0);
  frame.body +=
      fmt::format("  {} {};\n  wgmma.commit_group.sync.aligned;\n  wgmma.wait_group.sync.aligned 0;\n", insn,
                  operands) +
      store_registers(0, results);
  Random random(name);
  std::vector<uint8_t> input;
  for (int thread = 0; thread < frame.threads; ++thread) {
    append_values(input, f.d, f.profile, results * 32 / bits_of_type(f.d), random);
    append_values(input, f.a, f.profile, 128 / bits_of_type(f.a), random);
    append_metadata(input, f.a, false, random);
  }
  append_values(input, f.a, f.profile, a_bytes * 8 / bits_of_type(f.a), random);
  append_values(input, f.b, f.profile, b_bytes * 8 / bits_of_type(f.b), random);
  out.push_back(make_kernel(kFamily, name, frame, std::move(input)));
}

void add_wgmma_forms(Kernels& out) {
  struct Types {
    const char *d, *a, *b;
  };
  const Types floats[] = {{"f32", "f16", "f16"},   {"f16", "f16", "f16"},   {"f32", "bf16", "bf16"},
                          {"f32", "tf32", "tf32"}, {"f32", "e4m3", "e4m3"}, {"f32", "e5m2", "e5m2"},
                          {"f32", "e4m3", "e5m2"}, {"f32", "e5m2", "e4m3"}, {"f16", "e4m3", "e4m3"},
                          {"f16", "e5m2", "e5m2"}, {"f16", "e4m3", "e5m2"}, {"f16", "e5m2", "e4m3"}};
  const Types integers[] = {
      {"s32", "s8", "s8"}, {"s32", "s8", "u8"}, {"s32", "u8", "s8"}, {"s32", "u8", "u8"}};
  const auto profile_of = [](int i) { return static_cast<Profile>(i % kProfiles); };
  // Every n, for one type of each kind.
  for (int n = 8; n <= 256; n += n < 32 ? 8 : 32)
    for (const Types& t : {floats[0], floats[1], floats[3], floats[4], floats[8], integers[0]})
      add_wgmma(out, {n, t.d, t.a, t.b, profile_of(n / 8)});
  for (const Types& t : floats)
    for (int p = 0; p < kProfiles; ++p)
      for (bool in_registers : {false, true}) {
        const int selectors = bits_of_type(t.a) >= 16 ? 2 : 1;
        add_wgmma(out, {24, t.d, t.a, t.b, profile_of(p), in_registers, p % selectors});
      }
  for (const Types& t : integers)
    for (bool in_registers : {false, true})
      for (bool saturate : {false, true})
        for (Profile p : {Profile::kAnyBits, Profile::kHuge}) {
          Wgmma f{24, t.d, t.a, t.b, p, in_registers};
          f.saturate = saturate;
          add_wgmma(out, f);
        }
  for (const Types& t : {floats[0], floats[1], floats[2]})
    for (int majors = 1; majors < 4; ++majors) {
      Wgmma f{64, t.d, t.a, t.b, Profile::kAnyBits};
      f.a_is_mn_major = (majors & 1) != 0, f.b_is_mn_major = (majors & 2) != 0;
      f.selector = majors % 2;
      add_wgmma(out, f);
    }
  for (const Types& t : {floats[0], floats[3], floats[4]})
    for (int signs = 0; signs < 4; ++signs) {
      Wgmma f{16, t.d, t.a, t.b, Profile::kSpecial};
      f.negate_a = (signs & 1) != 0, f.negate_b = (signs & 2) != 0, f.adds = signs != 0;
      add_wgmma(out, f);
    }
}

}  // namespace

void add_sparse_products(Kernels& out) {
  add_mma_forms(out);
  add_wgmma_forms(out);
}

}  // namespace imbrex::conformance
