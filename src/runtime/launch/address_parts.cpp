// SPDX-License-Identifier: Apache-2.0
#include "runtime/launch/address_parts.h"

#include <algorithm>
#include <cstring>

#include "runtime/launch/check_tensor_map.h"
#include "runtime/launch/host_program.h"

namespace imbrex::runtime {

using codegen::HostStep;
using codegen::ParamPlan;

AddressParts::AddressParts(const codegen::CompiledKernel& kernel) {
  std::vector<bool> is_address(kernel.host.size());  // by slot: depends on one
  const auto depends = [&](int32_t slot) { return is_address[static_cast<size_t>(slot)]; };
  for (size_t i = 0; i < kernel.host.size(); ++i) {
    const HostStep& step = kernel.host[i];
    switch (step.kind) {
      case HostStep::Kind::kConstant:
        break;
      case HostStep::Kind::kParam:
        is_address[i] = kernel.arguments[static_cast<size_t>(step.a)].is_pointer;
        break;
      case HostStep::Kind::kBinary:
        is_address[i] = depends(step.a) || depends(step.b);
        break;
      case HostStep::Kind::kUnary:
      case HostStep::Kind::kDivmodMagic:
        is_address[i] = depends(step.a);
        break;
      case HostStep::Kind::kSelect:
        is_address[i] = depends(step.a) || depends(step.b) || depends(step.c);
        break;
    }
    if (is_address[i]) steps_.push_back(static_cast<int32_t>(i));
  }
  for (const ParamPlan& param : kernel.params) {
    switch (param.kind) {
      case ParamPlan::Kind::kUser:
        if (kernel.arguments[static_cast<size_t>(param.index)].is_pointer) params_.push_back(param);
        break;
      case ParamPlan::Kind::kHost:
        if (depends(param.index)) params_.push_back(param);
        break;
      case ParamPlan::Kind::kTensorMap: {
        const codegen::TensorMapPlan& map = kernel.tensor_maps[static_cast<size_t>(param.index)];
        const bool others =
            std::ranges::any_of(map.dim_slots, depends) || std::ranges::any_of(map.stride_slots, depends);
        if (others || depends(map.base_slot)) maps_.push_back({param.index, param.offset, others});
        break;
      }
    }
  }
}

void AddressParts::update(const codegen::CompiledKernel& kernel, std::span<const int64_t> arguments,
                          std::span<int64_t> slots, DeviceBackend& device, std::byte* params) {
  for (const int32_t step : steps_) {
    const HostStep& s = kernel.host[static_cast<size_t>(step)];
    slots[static_cast<size_t>(step)] = s.kind == HostStep::Kind::kParam && s.dtype.bits() == 64
                                           ? arguments[static_cast<size_t>(s.a)]
                                           : evaluate_step(s, arguments, slots);
  }
  for (const ParamPlan& param : params_) {
    const auto index = static_cast<size_t>(param.index);
    const int64_t value = param.kind == ParamPlan::Kind::kUser ? arguments[index] : slots[index];
    if (param.bytes == sizeof value)
      std::memcpy(params + param.offset, &value, sizeof value);
    else
      std::memcpy(params + param.offset, &value, static_cast<size_t>(param.bytes));
  }
  for (Map& map : maps_) {
    const codegen::TensorMapPlan& plan = kernel.tensor_maps[static_cast<size_t>(map.map)];
    if (map.has_other_extents) {
      check_tensor_map(kernel, plan, slots);
      device.encode_tensor_map(plan, slots, params + map.offset);
    } else {
      device.move_tensor_map(plan, slots, params + map.offset, map.word);
    }
  }
}

}  // namespace imbrex::runtime
