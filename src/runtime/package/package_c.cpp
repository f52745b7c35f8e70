// SPDX-License-Identifier: Apache-2.0
#include "runtime/package/package_c.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>

#include "imbrex/core/version.h"
#include "runtime/package/plan_c.h"
#include "runtime/package/template_text.h"

namespace imbrex::runtime {
namespace {

using codegen::ArgumentInfo;
using codegen::CompiledKernel;
using codegen::ParamPlan;

std::string c_type(const ArgumentInfo& argument) {
  if (argument.is_pointer) return "void*";
  if (argument.dtype == float32) return "float";
  if (argument.dtype == float64) return "double";
  if (argument.dtype.is_bool()) return "int";
  return fmt::format("{}int{}_t", argument.dtype.is_signed() ? "" : "u", argument.dtype.bits());
}

std::string c_parameters(const CompiledKernel& kernel) {
  std::string text = "void* stream";
  for (const ArgumentInfo& argument : kernel.arguments)
    text += fmt::format(", {} {}", c_type(argument), argument.name);
  return text;
}

/// Statements that put the arguments of the launch into a[...].
std::string argument_values(const CompiledKernel& kernel) {
  std::string text;
  for (size_t i = 0; i < kernel.arguments.size(); ++i) {
    const ArgumentInfo& argument = kernel.arguments[i];
    if (argument.is_pointer)
      text += fmt::format("  a[{}] = (int64_t)(uintptr_t){};\n", i, argument.name);
    else if (argument.dtype.is_float())
      text += fmt::format("  memcpy(&a[{}], &{}, sizeof {});\n", i, argument.name, argument.name);
    else if (argument.dtype.is_bool())
      text += fmt::format("  a[{}] = {} != 0;\n", i, argument.name);
    else
      text += fmt::format("  a[{}] = (int64_t){};\n", i, argument.name);
  }
  return text;
}

/// What the driver loads: machine code, or PTX as text that ends with a zero.
std::string loadable(const PackagedVariant& variant) {
  return variant.cubin.empty() ? variant.kernel.ptx + '\0' : variant.cubin;
}

/// The bytes as numbers, 24 in a line.
std::string byte_lines(const std::string& bytes) {
  std::string text;
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (i % 24 == 0) text += i == 0 ? "  " : "\n  ";
    text += fmt::format("{},", static_cast<unsigned>(static_cast<unsigned char>(bytes[i])));
  }
  return text + "\n";
}

/// The plan and the code of one target.
std::string plan_and_code(const PackagedVariant& variant) {
  const CompiledKernel& kernel = variant.kernel;
  std::vector<int32_t> offsets;
  for (const ParamPlan& param : kernel.params) offsets.push_back(param.offset);
  if (offsets.empty()) offsets.push_back(0);
  const std::string code = loadable(variant), ptx = variant.kernel.ptx + '\0';
  return filled(
      templates::plan_c,
      {{"TARGET", variant.target},
       {"SLOTS", std::to_string(std::max<size_t>(kernel.host.size(), 1))},
       {"STATEMENTS", plan_statements(kernel)},
       {"OFFSETS", fmt::format("{}", fmt::join(offsets, ", "))},
       {"CODE_BYTES", std::to_string(code.size())},
       {"CODE", byte_lines(code)},
       {"PTX", variant.cubin.empty() ? std::string()
                                     : fmt::format("\nstatic const unsigned char ptx_{}[{}] = {{\n{}}};\n",
                                                   variant.target, ptx.size(), byte_lines(ptx))}});
}

/// The row of one target in the table of variants.
std::string variant_row(const PackagedVariant& variant) {
  const CompiledKernel& kernel = variant.kernel;
  const std::string& target = variant.target;
  return fmt::format("  {{{}, {}, code_{}, {}, plan_{}, {}, {{{}}}, {}, {}, offsets_{}}},\n",
                     std::atoi(target.c_str() + 3), target.back() == 'a' ? 1 : 0, target,
                     variant.cubin.empty() ? "0" : "ptx_" + target, target, kernel.threads,
                     fmt::join(kernel.cluster, ", "), kernel.shared_bytes, kernel.params.size(), target);
}

/// Text inside a C comment.
std::string comment(std::string text) {
  for (size_t at = 0; (at = text.find("*/", at)) != std::string::npos;) text.replace(at, 2, "* /");
  return text;
}

}  // namespace

std::string package_header(const CompiledKernel& kernel, const std::string& about) {
  std::string guard = kernel.name + "_H";
  std::transform(guard.begin(), guard.end(), guard.begin(), [](unsigned char c) { return std::toupper(c); });
  std::string alignments;
  for (const ArgumentInfo& argument : kernel.arguments)
    if (argument.is_pointer)
      alignments += fmt::format(" *   {}: a device address, a multiple of {} bytes\n", argument.name,
                                argument.alignment);
  return filled(templates::kernel_h, {{"NAME", kernel.name},
                                      {"ABOUT", comment(about)},
                                      {"VERSION", version()},
                                      {"GUARD", guard},
                                      {"PARAMETERS", c_parameters(kernel)},
                                      {"ALIGNMENTS", alignments}});
}

std::string package_loader(const std::vector<PackagedVariant>& variants, const std::string& about) {
  const CompiledKernel& first = variants[0].kernel;
  bool has_maps = false, has_magic = false;
  size_t param_bytes = 8, param_count = 1;
  std::vector<std::string> targets;
  std::string plans, rows;
  for (const PackagedVariant& variant : variants) {
    has_maps = has_maps || !variant.kernel.tensor_maps.empty();
    has_magic = has_magic || needs_divmod_magic(variant.kernel);
    param_bytes = std::max<size_t>(param_bytes, static_cast<size_t>(variant.kernel.param_bytes));
    param_count = std::max(param_count, variant.kernel.params.size());
    targets.push_back(variant.target);
    plans += plan_and_code(variant);
    rows += variant_row(variant);
  }
  std::string helpers;
  if (has_magic) helpers += fmt::format("\n{}", templates::divmod_magic_c);
  if (has_maps) helpers += fmt::format("\n{}", templates::encode_map_c);
  return filled(templates::kernel_c,
                {{"NAME", first.name},
                 {"ABOUT", comment(about)},
                 {"VERSION", version()},
                 {"HELPERS", helpers},
                 {"PLANS", plans},
                 {"VARIANTS", rows},
                 {"TARGETS", fmt::format("{}", fmt::join(targets, ", "))},
                 {"PARAMETERS", c_parameters(first)},
                 {"ARGUMENTS", std::to_string(std::max<size_t>(first.arguments.size(), 1))},
                 {"PARAM_WORDS", std::to_string((param_bytes + 7) / 8)},
                 {"PARAM_COUNT", std::to_string(param_count)},
                 {"ARGUMENT_VALUES", argument_values(first)}});
}

}  // namespace imbrex::runtime
