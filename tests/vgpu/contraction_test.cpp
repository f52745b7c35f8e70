// SPDX-License-Identifier: Apache-2.0
// Products that become one operation with the sums they go into, as ptxas 13.0 does it: these forms were run on an H200, whose bits are
// those that are expected here.
#include <fmt/format.h>

#include <cmath>
#include <functional>
#include <random>

#include "vgpu_testing.h"

namespace imbrex::vgpu {
namespace {

struct Form {
  std::string code;  // of %a, %b, %c, %d; the result is %x
  std::function<float(float a, float b, float c, float d)> expected;
};

std::vector<float> run(const std::string& code, const std::vector<float>& in) {
  const std::string text = fmt::format(R"(.version 9.0
.target sm_90a
.address_size 64
.visible .entry form(.param .u64 in, .param .u64 out) {{
  .reg .f32 %a, %b, %c, %d, %m, %n, %x, %y; .reg .b32 %t; .reg .b64 %in, %out, %at; .reg .pred %p;
  ld.param.u64 %in, [in]; ld.param.u64 %out, [out];
  mov.u32 %t, %tid.x; mul.wide.u32 %at, %t, 16; add.u64 %in, %in, %at; mul.wide.u32 %at, %t, 4; add.u64 %out, %out, %at;
  ld.global.v4.f32 {{%a, %b, %c, %d}}, [%in];
  setp.lt.u32 %p, %t, 16; mov.f32 %x, %a;
  {}
  st.global.f32 [%out], %x;
  ret;
}}
)",
                                       code);
  VirtualGpu gpu({.target = "sm_90a"});
  const auto bytes = static_cast<int64_t>(in.size() * sizeof(float));
  DeviceAddress from = gpu.allocate(bytes), to = gpu.allocate(bytes / 4);
  gpu.copy_to_device(from, in.data(), bytes);
  void* arguments[] = {&from, &to};
  const Report report = gpu.launch(gpu.load_module(text, "form.ptx").function("form"),
                                   {.grid = {1}, .block = {32}, .arguments = arguments});
  EXPECT_TRUE(report.findings.empty()) << report.format();
  std::vector<float> out(in.size() / 4);
  gpu.copy_from_device(out.data(), to, bytes / 4);
  return out;
}

TEST(Contraction, AsTheAssemblerDoesIt) {
  const std::vector<Form> forms = {
      {"mul.f32 %m, %a, %b; add.f32 %x, %m, %c;",
       [](float a, float b, float c, float) { return std::fma(a, b, c); }},
      {"mul.f32 %m, %a, %b; sub.f32 %x, %m, %c;",
       [](float a, float b, float c, float) { return std::fma(a, b, -c); }},
      {"mul.f32 %m, %a, %b; sub.f32 %x, %c, %m;",
       [](float a, float b, float c, float) { return std::fma(-a, b, c); }},
      // Of two products the left one.
      {"mul.f32 %m, %a, %b; mul.f32 %n, %c, %d; add.f32 %x, %m, %n;",
       [](float a, float b, float c, float d) { return std::fma(a, b, c * d); }},
      {"mul.f32 %m, %a, %b; mul.f32 %n, %c, %d; add.f32 %x, %n, %m;",
       [](float a, float b, float c, float d) { return std::fma(c, d, a * b); }},
      // Into two sums, and into one while the product itself is wanted, too.
      {"mul.f32 %m, %a, %b; add.f32 %y, %m, %c; sub.f32 %x, %m, %d; mul.rn.f32 %x, %x, %y;",
       [](float a, float b, float c, float d) { return std::fma(a, b, -d) * std::fma(a, b, c); }},
      {"mul.f32 %m, %a, %b; add.f32 %y, %m, %c; mul.rn.f32 %x, %y, %m;",
       [](float a, float b, float c, float) {
         const float m = a * b;
         return (m + c) * m;
       }},
      {"mul.f32 %m, %a, %b; add.f32 %x, %m, %m;",
       [](float a, float b, float, float) {
         const float m = a * b;
         return m + m;
       }},
      // Where one of them says how it rounds, where they flush differently, and in another block.
      {"mul.rn.f32 %m, %a, %b; add.f32 %x, %m, %c;",
       [](float a, float b, float c, float) {
         const float m = a * b;
         return m + c;
       }},
      {"mul.f32 %m, %a, %b; add.rn.f32 %x, %m, %c;",
       [](float a, float b, float c, float) {
         const float m = a * b;
         return m + c;
       }},
      {"mul.ftz.f32 %m, %a, %b; add.f32 %x, %m, %c;",
       [](float a, float b, float c, float) {
         const float m = a * b;
         return m + c;
       }},
      {"mul.f32 %m, %a, %b; @!%p bra DONE; add.f32 %x, %m, %c;\nDONE:", nullptr},
      {"mul.ftz.f32 %m, %a, %b; add.ftz.f32 %x, %m, %c;",
       [](float a, float b, float c, float) { return std::fma(a, b, c); }},
      {"mul.f32 %m, %a, %b; mov.f32 %x, %d; @%p add.f32 %x, %m, %c;", nullptr},
      // A factor that has changed in between: what was multiplied counts.
      {"mul.f32 %m, %a, %b; mov.f32 %a, %d; add.f32 %x, %m, %c;",
       [](float a, float b, float c, float) {
         const float m = a * b;
         return m + c;
       }},
  };
  std::mt19937 random(20261123);
  std::uniform_real_distribution<float> values(-3, 3);
  std::vector<float> in(128);
  for (float& x : in) x = values(random);
  int rounded_otherwise = 0;
  for (const Form& form : forms) {
    const std::vector<float> out = run(form.code, in);
    for (size_t i = 0; i < out.size(); ++i) {
      const float a = in[4 * i], b = in[4 * i + 1], c = in[4 * i + 2], d = in[4 * i + 3];
      const float product = a * b, apart = product + c;
      const bool is_guarded_sum = form.code.find("@%p add") != std::string::npos;
      const float expected = form.expected != nullptr ? form.expected(a, b, c, d)
                             : is_guarded_sum         ? (i < 16 ? std::fma(a, b, c) : d)
                                                      : (i < 16 ? apart : a);
      EXPECT_EQ(out[i], expected) << form.code << " in lane " << i;
      rounded_otherwise += std::fma(a, b, c) != apart;
    }
  }
  EXPECT_GT(rounded_otherwise, 0) << "the numbers tell one from the other";
}

/// A remainder as CuPy computes it: with 255.6, which 1.2 divides but for their rounding, a chip gives the tiny rest.
TEST(Contraction, OfDoubles) {
  const std::string text = R"(.version 9.0
.target sm_90a
.address_size 64
.visible .entry form(.param .u64 out) {
  .reg .f64 %x, %y, %q, %m; .reg .b64 %out;
  ld.param.u64 %out, [out];
  mov.f64 %x, 0d406FF33333333333; mov.f64 %y, 0d3FF3333333333333;
  div.rn.f64 %q, %x, %y; cvt.rmi.f64.f64 %q, %q; mul.f64 %m, %q, %y; sub.f64 %x, %x, %m;
  st.global.f64 [%out], %x;
  ret;
}
)";
  VirtualGpu gpu({.target = "sm_90a"});
  DeviceAddress to = gpu.allocate(8);
  void* arguments[] = {&to};
  gpu.launch(gpu.load_module(text, "form.ptx").function("form"), {.block = {1}, .arguments = arguments});
  double out = 0;
  gpu.copy_from_device(&out, to, 8);
  EXPECT_EQ(out, 0x1.1p-48);
}

}  // namespace
}  // namespace imbrex::vgpu
