// SPDX-License-Identifier: Apache-2.0
#include "kit.h"

#include <cmath>

#include "../ptxas.h"
#include "core/float_formats.h"
#include "imbrex/core/error.h"
#include "ir/ir.h"
#include "passes/pipeline.h"
#include "runtime/launch/host_program.h"

namespace imbrex::codegen::testing {

double Buffer::get(int64_t i) const {
  const int width = type_.bytes();
  uint64_t bits = 0;
  std::memcpy(&bits, bytes_.data() + i * width, width);
  if (type_.is_float()) return arith::decode(arith::float_format(type_), bits);
  if (type_.is_bool()) return bits != 0;
  if (!type_.is_signed()) return static_cast<double>(bits);
  const int shift = 64 - type_.bits();
  return static_cast<double>(static_cast<int64_t>(bits << shift) >> shift);
}

void Buffer::set(int64_t i, double value) {
  uint64_t bits;
  if (type_.is_float())
    bits = arith::encode(arith::float_format(type_), value);
  else if (type_.is_bool())
    bits = value != 0;
  else
    bits = static_cast<uint64_t>(static_cast<int64_t>(value));
  std::memcpy(bytes_.data() + i * type_.bytes(), &bits, type_.bytes());
}

double rounded(DataType type, double value) {
  Buffer one(type, 1);
  one.set(0, value);
  return one.get(0);
}

double random_value(DataType type, std::mt19937& random) {
  if (type.is_bool()) return random() % 2;
  if (!type.is_float()) return static_cast<double>(random() % 100) - (type.is_signed() ? 50 : 0);
  return (static_cast<double>(random() % 64) - 32) / 8;
}

void fill_random(Buffer& buffer, std::mt19937& random) {
  for (int64_t i = 0; i < buffer.size(); ++i) buffer.set(i, random_value(buffer.type(), random));
}

CompiledKernel compile(const std::string& ir, const Options& options) {
  const std::unique_ptr<ir::Function> function = ir::parse(ir);
  ir::verify(*function);
  passes::run_pipeline(*function, {});
  return generate(*function, options);
}

CompiledKernel compile_as_is(const std::string& ir) {
  const std::unique_ptr<ir::Function> function = ir::parse(ir);
  function->shared_bytes = 0;
  ir::walk(function->body, [&](const ir::Op& op) {
    if (op.code == ir::Opcode::kSharedAlloc)
      function->shared_bytes =
          std::max(function->shared_bytes, op.int_attr("offset") + op.result()->type.layout->bytes());
  });
  return generate(*function);
}

std::string compile_error(const std::string& ir) {
  try {
    compile(ir);
  } catch (const CompileError& error) {
    return error.what();
  }
  return "";
}

vgpu::Report run(const CompiledKernel& kernel, const std::vector<Argument>& arguments, uint64_t seed) {
  vgpu::VirtualGpu gpu(
      {.target = kernel.target, .host_threads = 1, .seed = seed, .checks = vgpu::CheckSet::all()});
  std::vector<int64_t> values;
  for (const Argument& a : arguments) {
    if (const int64_t* number = std::get_if<int64_t>(&a)) {
      values.push_back(*number);
      continue;
    }
    Buffer& buffer = *std::get<Buffer*>(a);
    const auto bytes = static_cast<int64_t>(buffer.bytes().size());
    values.push_back(static_cast<int64_t>(gpu.allocate(std::max<int64_t>(bytes, 1))));
    gpu.copy_to_device(static_cast<vgpu::DeviceAddress>(values.back()), buffer.bytes().data(), bytes);
  }
  std::vector<int64_t> slots(kernel.host.size());
  runtime::evaluate_host(kernel, values, slots);
  std::vector<std::byte> parameters(kernel.param_bytes);
  for (const ParamPlan& p : kernel.params) {
    const int64_t value = p.kind == ParamPlan::Kind::kUser ? values[p.index] : slots[p.index];
    std::memcpy(parameters.data() + p.offset, &value, p.bytes);
  }
  vgpu::Launch launch;
  int64_t* grid[] = {&launch.grid.x, &launch.grid.y, &launch.grid.z};
  for (int i = 0; i < 3; ++i)
    if (kernel.grid_slots[i] >= 0) *grid[i] = slots[kernel.grid_slots[i]];
  launch.block.x = kernel.threads;
  launch.dynamic_shared_bytes = kernel.shared_bytes;
  launch.parameter_buffer = parameters;
  vgpu::Function function = gpu.load_module(kernel.ptx).function(kernel.name);
  function.set_max_dynamic_shared(kernel.shared_bytes);
  const vgpu::Report report = gpu.launch(function, launch);
  EXPECT_TRUE(report.clean()) << report.format() << "\n" << kernel.ptx;
  for (size_t i = 0; i < arguments.size(); ++i)
    if (Buffer* const* buffer = std::get_if<Buffer*>(&arguments[i]))
      gpu.copy_from_device((*buffer)->bytes().data(), static_cast<vgpu::DeviceAddress>(values[i]),
                           static_cast<int64_t>((*buffer)->bytes().size()));
  return report;
}

void expect_assembles(const CompiledKernel& kernel) {
  static const bool has_ptxas = [] {
    const bool found = !find_cuda_tool("ptxas").path.empty();
    if (!found) needs::say_partly(needs::ptxas);
    return found;
  }();
  if (!has_ptxas) return;
  const std::string said = ptxas_says(kernel.ptx, "-arch=" + kernel.target);
  EXPECT_FALSE(said.starts_with("failed")) << said << kernel.ptx;
}

std::string fill(std::string text, std::initializer_list<std::pair<std::string, std::string>> values) {
  for (const auto& [name, value] : values) {
    const std::string mark = "{" + name + "}";
    for (size_t at = text.find(mark); at != std::string::npos; at = text.find(mark, at + value.size()))
      text.replace(at, mark.size(), value);
  }
  return text;
}

}  // namespace imbrex::codegen::testing
