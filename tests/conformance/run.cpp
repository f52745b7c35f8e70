// SPDX-License-Identifier: Apache-2.0
#include "run.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "imbrex/core/error.h"
#include "imbrex/vgpu/virtual_gpu.h"
#include "runtime/device/backend.h"
#include "runtime/driver/cuda_driver.h"

namespace imbrex::conformance {
namespace {

constexpr int64_t kMapBytes = 128;
constexpr int64_t kFirstMap = 64;  // after the two pointers, aligned as the entry declares

class Buffer {
 public:
  Buffer(runtime::DeviceBackend& backend, int64_t bytes)
      : address(backend.allocate(std::max<int64_t>(bytes, 16))), backend_(backend) {}
  ~Buffer() { backend_.free(address); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  const uint64_t address;

 private:
  runtime::DeviceBackend& backend_;
};

// The compiler never makes im2col maps, so its table of driver functions has not this one.
void encode_im2col(const MapSpec& map, uint64_t address, const std::vector<uint32_t>& element_strides,
                   void* out) {
  using Encode = int (*)(void*, int, uint32_t, void*, const uint64_t*, const uint64_t*, const int*,
                         const int*, uint32_t, uint32_t, const uint32_t*, int, int, int, int);
  static const auto encode =
      reinterpret_cast<Encode>(dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cuTensorMapEncodeIm2col"));
  const int result = encode == nullptr
                         ? -1
                         : encode(out, map.type, static_cast<uint32_t>(map.dims.size()),
                                  reinterpret_cast<void*>(address), map.dims.data(), map.strides_bytes.data(),
                                  map.lower_corner.data(), map.upper_corner.data(), map.box[0], map.pixels,
                                  element_strides.data(), 0, map.swizzle, 0, map.fills_with_nan ? 1 : 0);
  if (result != 0)
    throw Error(Diagnostic{{}, fmt::format("cuTensorMapEncodeIm2col answered {}", result), {}, ""});
}

// Element strides are not among what the compiler asks of a backend, so the encoders are called here.
void encode(const runtime::DeviceBackend& backend, const MapSpec& map, uint64_t address, void* out) {
  std::vector<uint32_t> element_strides = map.element_strides;
  if (element_strides.empty()) element_strides.assign(map.dims.size(), 1);
  if (backend.is_virtual()) {
    const auto common = [&](auto arguments) {
      arguments.type = static_cast<vgpu::TensorMapType>(map.type);
      arguments.address = address;
      arguments.dims = map.dims;
      arguments.strides_bytes = map.strides_bytes;
      arguments.element_strides = element_strides;
      arguments.swizzle = static_cast<vgpu::TensorMapSwizzle>(map.swizzle);
      arguments.fill_with_nan = map.fills_with_nan;
      return arguments;
    };
    vgpu::TensorMap encoded;
    if (map.pixels != 0) {
      vgpu::Im2colMapArguments arguments = common(vgpu::Im2colMapArguments{});
      arguments.lower_corner = map.lower_corner, arguments.upper_corner = map.upper_corner;
      arguments.channels = map.box[0], arguments.pixels = map.pixels;
      encoded = vgpu::encode_tensor_map(arguments);
    } else {
      vgpu::TensorMapArguments arguments = common(vgpu::TensorMapArguments{});
      arguments.box = map.box;
      encoded = vgpu::encode_tensor_map(arguments);
    }
    std::memcpy(out, &encoded, sizeof encoded);
    return;
  }
  if (map.pixels != 0) {
    encode_im2col(map, address, element_strides, out);
    return;
  }
  const runtime::CudaDriver* driver = runtime::CudaDriver::find(nullptr);
  runtime::TiledTensorMap tiled{.type = map.type,
                                .rank = static_cast<uint32_t>(map.dims.size()),
                                .address = address,
                                .swizzle = map.swizzle,
                                .oob_fill = map.fills_with_nan ? 1 : 0};
  std::ranges::copy(map.dims, tiled.dims);
  std::ranges::copy(map.strides_bytes, tiled.strides);
  std::ranges::copy(map.box, tiled.box);
  std::ranges::copy(element_strides, tiled.element_strides);
  driver->check(driver->encode(tiled, out), "tensor map");
}

codegen::CompiledKernel compiled(const MicroKernel& kernel) {
  codegen::CompiledKernel out;
  out.name = "form";
  out.target = "sm_90a";
  out.ptx = kernel.ptx;
  out.threads = kernel.threads;
  out.cluster = {kernel.cluster, 1, 1};
  using Kind = codegen::ParamPlan::Kind;
  out.params = {{Kind::kUser, 0, 0, 8}, {Kind::kUser, 1, 8, 8}};
  for (size_t m = 0; m < kernel.maps.size(); ++m)
    out.params.push_back({Kind::kTensorMap, static_cast<int32_t>(m),
                          static_cast<int32_t>(kFirstMap + kMapBytes * static_cast<int64_t>(m)),
                          static_cast<int32_t>(kMapBytes)});
  return out;
}

}  // namespace

std::vector<uint8_t> run(const Device& device, const MicroKernel& kernel) {
  runtime::DeviceBackend& backend = device.backend();
  const auto loaded = backend.load(compiled(kernel));
  const auto in_bytes = static_cast<int64_t>(kernel.input.size());
  const Buffer in(backend, in_bytes), out(backend, kernel.output_bytes);
  backend.copy_to_device(in.address, kernel.input.data(), in_bytes);
  backend.fill(out.address, kPoison, kernel.output_bytes);
  alignas(64) std::byte params[static_cast<size_t>(kFirstMap + 4 * kMapBytes)] = {};
  std::memcpy(params, &in.address, 8);
  std::memcpy(params + 8, &out.address, 8);
  for (size_t m = 0; m < kernel.maps.size(); ++m) {
    const MapSpec& map = kernel.maps[m];
    const uint64_t base = map.is_on_output ? out.address : in.address;
    encode(backend, map, base + static_cast<uint64_t>(map.offset),
           params + kFirstMap + kMapBytes * static_cast<int64_t>(m));
  }
  runtime::LaunchPlan plan;
  plan.grid[0] = kernel.ctas;
  plan.stream = backend.stream();
  const size_t param_bytes = kernel.maps.empty() ? 16
                                                 : static_cast<size_t>(kFirstMap) +
                                                       kernel.maps.size() * static_cast<size_t>(kMapBytes);
  plan.params = std::span<const std::byte>(params, param_bytes);
  backend.launch(*loaded, plan).expect_clean();
  std::vector<uint8_t> result(static_cast<size_t>(kernel.output_bytes));
  backend.copy_from_device(result.data(), out.address, kernel.output_bytes);
  return result;
}

}  // namespace imbrex::conformance
