// SPDX-License-Identifier: Apache-2.0
// Runs each instruction form on the virtual GPU and on the CUDA GPU of this machine, on edge values and
// random ones, and compares every bit. Prints a Markdown report.
//
//   imbrex_conformance [--filter TEXT] [--values N]
#include <fmt/format.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "forms.h"
#include "imbrex/device_tensor.h"
#include "imbrex/error.h"
#include "runtime/backend.h"

namespace imbrex::conformance {
namespace {

struct Random {
  uint64_t state = 12345;
  uint64_t operator()() {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return state * 0x2545F4914F6CDD1Du;
  }
};

uint64_t float_bits(double value, const std::string& kind) {
  HostTensor one(kind == "f64" ? float64 : kind == "f32" ? float32 : kind == "f16" ? float16 : bfloat16, {1});
  one.set(0, value);
  uint64_t bits = 0;
  std::memcpy(&bits, one.bytes().data(), one.bytes().size());
  return bits;
}

int width(const std::string& kind) { return kind.ends_with("64") ? 64 : kind.ends_with("32") ? 32 : 16; }

/// Values where things go wrong.
std::vector<uint64_t> edges(const std::string& kind) {
  std::vector<uint64_t> values;
  if (kind[0] == 'b' && kind != "bf16") {
    for (uint64_t v : {0ull,
                       1ull,
                       2ull,
                       3ull,
                       7ull,
                       8ull,
                       15ull,
                       16ull,
                       17ull,
                       31ull,
                       32ull,
                       33ull,
                       63ull,
                       64ull,
                       65ull,
                       127ull,
                       128ull,
                       255ull,
                       256ull,
                       0x7FFFull,
                       0x8000ull,
                       0xFFFFull,
                       0x10000ull,
                       0x7FFFFFFFull,
                       0x80000000ull,
                       0xFFFFFFFFull,
                       0x100000000ull,
                       0x7FFFFFFFFFFFFFFFull,
                       0x8000000000000000ull}) {
      values.push_back(v);
      values.push_back(~v);
    }
    return values;
  }
  const int mantissa = kind == "f64" ? 52 : kind == "f32" ? 23 : kind == "f16" ? 10 : 7;
  const int exponent = kind == "f64" ? 11 : kind == "f16" ? 5 : 8;
  const uint64_t infinity = ((uint64_t{1} << exponent) - 1) << mantissa,
                 sign = uint64_t{1} << (width(kind) - 1);
  for (uint64_t v :
       {uint64_t{0}, uint64_t{1}, uint64_t{2}, (uint64_t{1} << mantissa) - 1, uint64_t{1} << mantissa,
        (uint64_t{1} << mantissa) + 1, infinity - 1, infinity, infinity + 1,
        infinity | uint64_t{1} << (mantissa - 1), infinity | ((uint64_t{1} << mantissa) - 1)})
    values.insert(values.end(), {v, v | sign});
  for (double v : {1.0,
                   0.5,
                   1.5,
                   2.5,
                   3.5,
                   0.49999997,
                   0.1,
                   3.0,
                   127.5,
                   128.5,
                   255.5,
                   32767.5,
                   65535.5,
                   2147483647.0,
                   2147483648.0,
                   4294967296.0,
                   9.2233720368547758e18,
                   1.8446744073709552e19,
                   1e-30,
                   1e30,
                   0.70710678})
    values.insert(values.end(), {float_bits(v, kind), float_bits(-v, kind)});
  return values;
}

uint64_t random_value(const std::string& kind, Random& random) {
  const uint64_t bits = random();
  if (kind[0] == 'b' && kind != "bf16") return bits >> (random() % 64);
  // Half of them of every exponent, half near one, where operands meet.
  if (random() & 1) return bits;
  const double near = static_cast<double>(static_cast<int64_t>(bits)) * 0x1p-60;
  return float_bits(near, kind);
}

/// `count` operands of one position; registers of 32 bits holding two halves get two draws.
std::vector<uint64_t> operands(const Form& form, size_t position, int64_t count, Random& random) {
  const std::string& type = form.operands[position];
  std::string kind = type;
  bool is_pair = false;
  if (type[0] == 'b' && !form.values.empty() && form.values[0] != 'e' && width(type) <= 32) {
    kind = form.values;
    is_pair = width(type) == 32;
  }
  const std::vector<uint64_t> special = edges(kind);
  std::vector<uint64_t> values(count);
  const auto n = static_cast<int64_t>(special.size());
  for (int64_t i = 0; i < count; ++i) {
    auto draw = [&](int64_t at) {
      if (position == 0 && at < n * n) return special[at % n];
      if (position == 1 && at < n * n) return special[at / n];
      return at % 8 == 0 ? special[random() % n] : random_value(kind, random);
    };
    values[i] = draw(i);
    if (is_pair) values[i] = (values[i] & 0xFFFF) | (random_value(kind, random) & 0xFFFF) << 16;
  }
  return values;
}

std::string ptx_of(const Form& form) {
  std::string body, registers = "  .reg .b64 %in, %out, %at;\n  .reg .b32 %i, %t, %flag;\n";
  auto replace = [](std::string text, const std::string& from, const std::string& to) {
    for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
      text.replace(at, from.size(), to);
    return text;
  };
  std::string text = form.text;
  for (size_t p = 0; p < form.operands.size(); ++p) {
    const std::string name = fmt::format("%op{}", p);
    registers += fmt::format("  .reg .{} {};\n", form.operands[p], name);
    body += fmt::format("  ld.global.{} {}, [%at+{}];\n", form.operands[p], name, 8 * p);
    text = replace(text, std::string("%") + static_cast<char>('a' + p), name);
  }
  registers += fmt::format("  .reg .{} %res;\n", form.result);
  text = replace(text, "%d", "%res");
  body += "  " + text + ";\n";
  body += "  mad.wide.u32 %at, %i, 8, %out;\n";
  if (form.result == "pred")
    body += "  selp.b32 %flag, 1, 0, %res;\n  st.global.b32 [%at], %flag;\n";
  else
    body += fmt::format("  st.global.{} [%at], %res;\n", form.result);
  return fmt::format(
      ".version 8.3\n.target sm_90a\n.address_size 64\n"
      ".visible .entry form(.param .u64 in, .param .u64 out) {{\n{}"
      "  ld.param.u64 %in, [in];\n  ld.param.u64 %out, [out];\n"
      "  mov.u32 %i, %ctaid.x;\n  mov.u32 %t, %tid.x;\n  mad.lo.u32 %i, %i, 256, %t;\n"
      "  mad.wide.u32 %at, %i, 24, %in;\n{}  ret;\n}}\n",
      registers, body);
}

std::vector<uint64_t> run(const Device& device, const Form& form, const std::vector<uint64_t>& inputs,
                          int64_t count) {
  codegen::CompiledKernel kernel;
  kernel.name = "form";
  kernel.target = "sm_90a";
  kernel.ptx = ptx_of(form);
  kernel.threads = 256;
  runtime::DeviceBackend& backend = device.backend();
  auto loaded = backend.load(kernel);
  const auto in_bytes = static_cast<int64_t>(inputs.size() * 8);
  uint64_t addresses[2] = {backend.allocate(in_bytes), backend.allocate(count * 8)};
  backend.copy_to_device(addresses[0], inputs.data(), in_bytes);
  backend.fill(addresses[1], 0, count * 8);
  runtime::LaunchPlan plan;
  plan.grid[0] = count / 256;
  plan.params = std::as_bytes(std::span(addresses));
  LaunchReport report = backend.launch(*loaded, plan);
  report.expect_clean();
  std::vector<uint64_t> result(count);
  backend.copy_from_device(result.data(), addresses[1], count * 8);
  for (uint64_t address : addresses) backend.free(address);
  return result;
}

struct Tally {
  int64_t forms = 0, values = 0, differing_forms = 0, refused = 0;
};

int main(int argc, char** argv) {
  std::string filter;
  int64_t count = 8192;
  for (int i = 1; i + 1 < argc; i += 2) {
    if (std::string(argv[i]) == "--filter") filter = argv[i + 1];
    if (std::string(argv[i]) == "--values")
      count = std::max<int64_t>(256, std::atoll(argv[i + 1]) / 256 * 256);
  }
  std::string why_not;
  const bool has_gpu = Device::has_cuda(&why_not);
  if (!has_gpu) fmt::print("No CUDA GPU ({}): the forms only run on the virtual GPU.\n\n", why_not);
  vgpu::Options options;
  options.target = "sm_90a";
  Device virtual_gpu = Device::virtual_gpu(options);
  std::optional<Device> chip;
  if (has_gpu) chip = Device::cuda();
  std::map<std::string, Tally> tallies;
  std::vector<std::string> differences;
  for (const Form& form : forms()) {
    if (form.text.find(filter) == std::string::npos) continue;
    Random random;
    std::vector<uint64_t> inputs(count * 3);
    for (size_t p = 0; p < form.operands.size(); ++p) {
      const std::vector<uint64_t> values = operands(form, p, count, random);
      for (int64_t i = 0; i < count; ++i) inputs[i * 3 + p] = values[i];
    }
    Tally& tally = tallies[form.family];
    std::vector<uint64_t> got, expected;
    try {
      got = run(virtual_gpu, form, inputs, count);
    } catch (const Error& error) {
      ++tally.refused;
      differences.push_back(fmt::format("`{}`: the virtual GPU: {}", form.text, error.what()));
      continue;
    }
    try {
      if (chip) expected = run(*chip, form, inputs, count);
    } catch (const Error& error) {
      ++tally.refused;
      differences.push_back(fmt::format("`{}`: the chip: {}", form.text, error.what()));
      continue;
    }
    ++tally.forms;
    tally.values += count;
    int64_t wrong = 0, first = -1;
    for (int64_t i = 0; chip && i < count; ++i)
      if (got[i] != expected[i]) {
        ++wrong;
        if (first < 0) first = i;
      }
    if (wrong == 0) continue;
    ++tally.differing_forms;
    differences.push_back(
        fmt::format("`{}`: {} of {} differ; first at a={:#x} b={:#x} c={:#x}: virtual {:#x}, chip {:#x}",
                    form.text, wrong, count, inputs[first * 3], inputs[first * 3 + 1], inputs[first * 3 + 2],
                    got[first], expected[first]));
  }
  fmt::print("| family | forms | values | forms that differ | forms refused |\n|---|---|---|---|---|\n");
  for (const auto& [family, tally] : tallies)
    fmt::print("| {} | {} | {} | {} | {} |\n", family, tally.forms, tally.values, tally.differing_forms,
               tally.refused);
  fmt::print("\n");
  for (const std::string& difference : differences) fmt::print("- {}\n", difference);
  return differences.empty() ? 0 : 1;
}

}  // namespace
}  // namespace imbrex::conformance

int main(int argc, char** argv) { return imbrex::conformance::main(argc, argv); }
