// SPDX-License-Identifier: Apache-2.0
#include "snippet.h"

#include <fmt/format.h>

#include <random>

namespace imbrex::vgpu {

namespace {

std::string kernel_text(const std::string& code, const std::string& result, const std::string& target) {
  const bool wide = result == "%D";
  const std::string untouched = wide              ? "  mov.b64 %D, 0x5A5A5A5A5A5A5A5A;\n"
                                : result == "%hd" ? "  mov.b16 %hd, 0x5A5A;\n"
                                : result == "%d"  ? "  mov.b32 %d, 0x5A5A5A5A;\n"
                                                  : "  setp.ne.u32 %p, %lane, %lane;\n";
  const std::string store = wide              ? "  st.global.b64 [%out], %D;\n"
                            : result == "%hd" ? "  st.global.b16 [%out], %hd;\n"
                            : result == "%d"  ? "  st.global.b32 [%out], %d;\n"
                                              : "  selp.b32 %d, 1, 0, %p;\n  st.global.b32 [%out], %d;\n";
  const std::string guarded = code.front() == '{' ? code : "@%active " + code;
  return fmt::format(R"(.version 8.8
.target {}
.address_size 64
.visible .entry snippet(.param .u64 in, .param .u64 out, .param .u32 lanes, .param .u32 rows)
{{
  .reg .pred %p, %q, %active, %done;
  .reg .b16 %ha, %hb, %hc, %hd;
  .reg .b32 %a, %b, %c, %d, %t, %lane, %mask, %rows, %cta, %size;
  .reg .b64 %A, %B, %C, %D, %in, %out, %offset;
  .reg .b128 %Q;
  ld.param.u64 %in, [in];
  ld.param.u64 %out, [out];
  ld.param.u32 %mask, [lanes];
  ld.param.u32 %rows, [rows];
  mov.u32 %t, %tid.x;
  mov.u32 %cta, %ctaid.x;
  mov.u32 %size, %ntid.x;
  mad.lo.u32 %t, %cta, %size, %t;
  setp.ge.u32 %done, %t, %rows;
  @%done ret;
  mul.wide.u32 %offset, %t, 24;
  add.u64 %in, %in, %offset;
  mul.wide.u32 %offset, %t, 8;
  add.u64 %out, %out, %offset;
  ld.global.b64 %A, [%in];
  ld.global.b64 %B, [%in+8];
  ld.global.b64 %C, [%in+16];
  cvt.u32.u64 %a, %A;
  cvt.u32.u64 %b, %B;
  cvt.u32.u64 %c, %C;
  cvt.u16.u64 %ha, %A;
  cvt.u16.u64 %hb, %B;
  cvt.u16.u64 %hc, %C;
  and.b32 %t, %c, 1;
  setp.ne.u32 %q, %t, 0;
  mov.u32 %lane, %laneid;
  shr.u32 %t, %mask, %lane;
  and.b32 %t, %t, 1;
  setp.ne.u32 %active, %t, 0;
{}  {}
{}  ret;
}}
)",
                     target, untouched, guarded, store);
}

uint64_t untouched(const std::string& result) {
  if (result == "%D") return kUntouched;
  if (result == "%hd") return 0x5A5A;
  if (result == "%d") return 0x5A5A5A5A;
  return 0;
}

}  // namespace

std::vector<uint64_t> run_snippet(const std::string& code, const std::string& result,
                                  const std::vector<Row>& rows, uint32_t lanes, const std::string& target) {
  VirtualGpu gpu({.target = target, .host_threads = 1});
  const Function function = gpu.load_module(kernel_text(code, result, target), code).function("snippet");
  DeviceAddress in = to_device(gpu, rows), out = to_device(gpu, std::vector<uint64_t>(rows.size()));
  uint32_t count = static_cast<uint32_t>(rows.size());
  void* arguments[] = {&in, &out, &lanes, &count};
  const Report report =
      gpu.launch(function, {.grid = {(count + 127) / 128}, .block = {128}, .arguments = arguments});
  EXPECT_TRUE(report.clean()) << code << "\n" << report.format();
  return from_device<uint64_t>(gpu, out, rows.size());
}

void expect_snippet(const std::string& code, const std::string& result, const std::vector<Row>& rows,
                    const Expected& expected) {
  SCOPED_TRACE(code);
  for (const uint32_t lanes : {~0u, 0x5555'5555u, 0x0000'0080u}) {
    const std::vector<uint64_t> got = run_snippet(code, result, rows, lanes);
    for (size_t i = 0; i < rows.size(); ++i) {
      const bool active = (lanes >> (i % 32) & 1) != 0;
      const uint64_t want = active ? expected(rows[i].a, rows[i].b, rows[i].c) : untouched(result);
      ASSERT_EQ(fmt::format("{:x}", got[i]), fmt::format("{:x}", want)) << fmt::format(
          "a {:x} b {:x} c {:x}, lanes {:08x}, row {}", rows[i].a, rows[i].b, rows[i].c, lanes, i);
    }
  }
}

std::vector<Row> combinations(const std::vector<uint64_t>& values, int operands) {
  std::vector<Row> rows;
  const std::vector<uint64_t> one{1};
  // Three operands of many values are sampled, the rest is complete.
  std::mt19937_64 random(7);
  for (uint64_t a : values)
    for (uint64_t b : operands > 1 ? values : one) {
      if (operands < 3) {
        rows.push_back({a, b, values[random() % values.size()]});
        continue;
      }
      for (int i = 0; i < 3; ++i) rows.push_back({a, b, values[random() % values.size()]});
    }
  return rows;
}

std::vector<uint64_t> edge_integers(int bits) {
  std::vector<uint64_t> values;
  const uint64_t all = bits == 64 ? ~uint64_t{0} : (uint64_t{1} << bits) - 1;
  for (const uint64_t v :
       std::initializer_list<uint64_t>{0, 1, 2, 3, 5, 7, 15, 16, 31, 32, 33, 63, 64, 65, 255, 256})
    values.push_back(v & all);
  values.insert(values.end(), {all, all - 1, all >> 1, (all >> 1) + 1, (all >> 1) - 1, all / 3, all / 5 * 3});
  std::mt19937_64 random(static_cast<uint64_t>(bits));
  for (int i = 0; i < 8; ++i) values.push_back(random() & all);
  return values;
}

std::vector<uint64_t> edge_floats() {
  return {0x00000000, 0x80000000, 0x3F800000, 0xBF800000, 0x3F000000, 0x40490FDB, 0x00000001,
          0x807FFFFF, 0x00800000, 0x80800001, 0x7F7FFFFF, 0xFF7FFFFF, 0x7F800000, 0xFF800000,
          0x7FC00000, 0xFFC12345, 0x7F800001, 0x4B800000, 0x4B7FFFFF, 0x34000000, 0x3EAAAAAB,
          0xC2F6E979, 0x5F000000, 0x4F000000, 0xCF000001, 0x3FC00000, 0x1F123456};
}

std::vector<uint64_t> edge_doubles() {
  return {0x0000000000000000, 0x8000000000000000, 0x3FF0000000000000, 0xBFF0000000000000, 0x3FE0000000000000,
          0x400921FB54442D18, 0x0000000000000001, 0x800FFFFFFFFFFFFF, 0x0010000000000000, 0x7FEFFFFFFFFFFFFF,
          0xFFEFFFFFFFFFFFFF, 0x7FF0000000000000, 0xFFF0000000000000, 0x7FF8000000001234, 0xFFF0000000000001,
          0x4340000000000000, 0x3CB0000000000000, 0x41DFFFFFFFC00000, 0xC1E0000000200000, 0x3FD5555555555555};
}

std::vector<uint64_t> edge_halves() {
  return {0x0000, 0x8000, 0x3C00, 0xBC00, 0x3800, 0x4248, 0x0001, 0x83FF, 0x0400, 0x7BFF, 0xFBFF,
          0x7C00, 0xFC00, 0x7E00, 0xFD55, 0x6400, 0x1400, 0x3555, 0xC7B0, 0x3F80, 0x0080, 0x7F7F};
}

}  // namespace imbrex::vgpu
