// SPDX-License-Identifier: Apache-2.0
// Products that become one operation with the sums they go into, as ptxas 13.0 does it: the forms of each type that are here, and 177 of
// the 189 forms that were run on an H200 have its bits (in the other 12 a register is written again before the sum).
#include <fmt/format.h>

#include <array>
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
      // Negated and moved on the way.
      {"mul.f32 %m, %a, %b; neg.f32 %n, %m; add.f32 %x, %n, %c;",
       [](float a, float b, float c, float) { return std::fma(-a, b, c); }},
      {"mul.f32 %m, %a, %b; neg.f32 %n, %m; sub.f32 %x, %n, %c;",
       [](float a, float b, float c, float) { return std::fma(-a, b, -c); }},
      {"mul.f32 %m, %a, %b; neg.f32 %n, %m; sub.f32 %x, %c, %n;",
       [](float a, float b, float c, float) { return std::fma(a, b, c); }},
      {"mul.f32 %m, %a, %b; mov.f32 %n, %m; neg.f32 %y, %n; add.f32 %x, %c, %y;",
       [](float a, float b, float c, float) { return std::fma(-a, b, c); }},
      {"mul.f32 %m, %a, %b; neg.f32 %n, %m; add.f32 %y, %m, %c; add.f32 %x, %n, %d; mul.rn.f32 %x, %x, %y;",
       [](float a, float b, float c, float d) { return std::fma(-a, b, d) * std::fma(a, b, c); }},
      {"mul.f32 %m, %a, %b; neg.f32 %n, %m; add.f32 %y, %n, %c; mul.rn.f32 %x, %m, %y;",
       [](float a, float b, float c, float) {
         const float m = a * b;
         return (c - m) * m;
       }},
      {"mul.f32 %m, %a, %b; abs.f32 %n, %m; add.f32 %x, %n, %c;",
       [](float a, float b, float c, float) {
         const float m = std::fabs(a * b);
         return m + c;
       }},
      {"mul.f32 %m, %a, %b; neg.ftz.f32 %n, %m; add.f32 %x, %n, %c;",
       [](float a, float b, float c, float) {
         const float m = a * b;
         return c - m;
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

/// x with `bits` of mantissa, the first one included.
double rounded(double x, int bits) {
  int exponent = 0;
  const double mantissa = std::frexp(x, &exponent);
  return std::ldexp(std::nearbyint(std::ldexp(mantissa, bits)), exponent - bits);
}

struct HalfType {
  std::string name;
  int bits, mantissa;
  bool folds_neg;
};
uint16_t half_of(const HalfType& type, double x) {
  const int exponent_bits = 16 - type.mantissa, bias = (1 << (exponent_bits - 1)) - 1;
  int exponent = 0;
  const double mantissa = std::frexp(std::fabs(x), &exponent);
  if (mantissa == 0) return 0;
  const auto fraction = static_cast<int>(std::ldexp(mantissa, type.mantissa)) - (1 << (type.mantissa - 1));
  return static_cast<uint16_t>((std::signbit(x) ? 0x8000 : 0) | (exponent - 1 + bias) << (type.mantissa - 1) |
                               fraction);
}

TEST(Contraction, OfHalvesAndTheirPairs) {
  using Values = std::array<double, 4>;  // a, b, c, and one more
  const HalfType types[] = {
      {"f16", 16, 11, true}, {"f16x2", 32, 11, true}, {"bf16", 16, 8, true}, {"bf16x2", 32, 8, false}};
  struct HalfForm {
    const char* code;  // with TYPE
    /// Of a, b, c and the product, once rounded and once not.
    std::function<double(const Values& v, double kept, double exact, bool folds_neg)> expected;
  };
  const HalfForm forms[] = {
      {"mul.TYPE %m, %a, %b; add.TYPE %x, %m, %c;",
       [](const Values& v, double, double exact, bool) { return exact + v[2]; }},
      {"mul.TYPE %m, %a, %b; add.TYPE %x, %c, %m;",
       [](const Values& v, double, double exact, bool) { return exact + v[2]; }},
      {"mul.TYPE %m, %a, %b; sub.TYPE %x, %m, %c;",
       [](const Values& v, double, double exact, bool) { return exact - v[2]; }},
      {"mul.TYPE %m, %a, %b; sub.TYPE %x, %c, %m;",
       [](const Values& v, double, double exact, bool) { return v[2] - exact; }},
      {"mul.TYPE %m, %a, %b; neg.TYPE %n, %m; add.TYPE %x, %n, %c;",
       [](const Values& v, double kept, double exact, bool folds) { return v[2] - (folds ? exact : kept); }},
      {"mul.rn.TYPE %m, %a, %b; add.TYPE %x, %m, %c;",
       [](const Values& v, double kept, double, bool) { return kept + v[2]; }},
      {"mul.TYPE %m, %a, %b; add.rn.TYPE %x, %m, %c;",
       [](const Values& v, double kept, double, bool) { return kept + v[2]; }},
      {"mul.TYPE %m, %a, %b; add.TYPE %x, %m, %m;",
       [](const Values&, double kept, double, bool) { return 2 * kept; }},
  };
  std::mt19937 random(20261123);
  std::uniform_real_distribution<double> values(0.5, 3);
  for (const HalfType& type : types)
    for (const HalfForm& form : forms) {
      std::string code = form.code;
      for (size_t at; (at = code.find("TYPE")) != std::string::npos;) code.replace(at, 4, type.name);
      const int bytes = type.bits / 8, halves = type.bits / 16;
      const std::string text = fmt::format(R"(.version 9.0
.target sm_90a
.address_size 64
.visible .entry form(.param .u64 in, .param .u64 out) {{
  .reg .b{0} %a, %b, %c, %m, %n, %x; .reg .b32 %t; .reg .b64 %in, %out, %at;
  ld.param.u64 %in, [in]; ld.param.u64 %out, [out];
  mov.u32 %t, %tid.x; mul.wide.u32 %at, %t, {2}; add.u64 %in, %in, %at;
  mul.wide.u32 %at, %t, {1}; add.u64 %out, %out, %at;
  ld.global.b{0} %a, [%in]; ld.global.b{0} %b, [%in+{1}]; ld.global.b{0} %c, [%in+{3}];
  {4}
  st.global.b{0} [%out], %x;
  ret;
}}
)",
                                           type.bits, bytes, 4 * bytes, 2 * bytes, code);
      const auto count = static_cast<size_t>(32 * 4 * halves);
      std::vector<double> numbers(count);
      std::vector<uint16_t> in(count), out(count / 4);
      for (size_t i = 0; i < count; ++i) {
        numbers[i] = rounded(values(random) * (random() % 2 == 0 ? 1 : -1), type.mantissa);
        in[i] = half_of(type, numbers[i]);
      }
      VirtualGpu gpu({.target = "sm_90a"});
      DeviceAddress from = gpu.allocate(static_cast<int64_t>(count * 2)),
                    to = gpu.allocate(static_cast<int64_t>(count / 2));
      gpu.copy_to_device(from, in.data(), static_cast<int64_t>(count * 2));
      void* arguments[] = {&from, &to};
      const Report report = gpu.launch(gpu.load_module(text, "form.ptx").function("form"),
                                       {.block = {32}, .arguments = arguments});
      EXPECT_TRUE(report.clean()) << report.format();
      gpu.copy_from_device(out.data(), to, static_cast<int64_t>(count / 2));
      int differing = 0;
      for (size_t lane = 0; lane < 32; ++lane)
        for (size_t h = 0; h < static_cast<size_t>(halves); ++h) {
          Values v;
          for (size_t i = 0; i < 4; ++i) v[i] = numbers[(lane * 4 + i) * static_cast<size_t>(halves) + h];
          const double exact = v[0] * v[1], kept = rounded(exact, type.mantissa);
          const double expected = rounded(form.expected(v, kept, exact, type.folds_neg), type.mantissa);
          EXPECT_EQ(out[lane * static_cast<size_t>(halves) + h], half_of(type, expected)) << code;
          differing += rounded(kept + v[2], type.mantissa) != rounded(exact + v[2], type.mantissa);
        }
      EXPECT_GT(differing, 0) << "the numbers tell one from the other";
    }
}

}  // namespace
}  // namespace imbrex::vgpu
