// SPDX-License-Identifier: Apache-2.0
// The virtual GPU: a PTX machine on the CPU, shaped like the CUDA driver API.
//
// It takes PTX text from any compiler and runs it as an sm_80, sm_90a or sm_100a device would, asynchronous
// units and tensor cores included, while watching for races, deadlocks, missing fences, uninitialised reads,
// out-of-bounds accesses and leaked resources. Hosting a kernel takes a few lines:
//
//   vgpu::VirtualGpu gpu({.target = "sm_90a"});
//   vgpu::Module module = gpu.load_module(ptx_text);
//   vgpu::Function add = module.function("vector_add");
//   vgpu::DeviceAddress a = gpu.allocate(n * 4);
//   gpu.copy_to_device(a, host_a.data(), n * 4);
//   ...
//   void* arguments[] = {&a, &b, &c, &n};
//   vgpu::Report report =
//       gpu.launch(add, {.grid = {(n + 255) / 256}, .block = {256}, .arguments = arguments});
//   if (!report.clean()) std::puts(report.format().c_str());
//
// examples/host_foreign_kernel.cpp is a whole program, with a tensor map, clusters and a raw parameter
// buffer; tests/foreign runs some thirty kernels of nvcc and Triton.
//
// What a kernel of a CUDA or Triton program needs besides its PTX:
//   - its entry's name: C++ kernels have mangled ones unless extern "C"; Module::function_names() lists them;
//   - the threads of a block: Triton's are 32 * num_warps of its metadata (or .reqntid of the PTX);
//   - dynamic shared memory (`extern __shared__`, Triton's metadata.shared): Launch::dynamic_shared_bytes, and
//     Function::set_max_dynamic_shared() above 48 KiB;
//   - tensor maps (CUtensorMap): encode_tensor_map(), then by value as a `__grid_constant__` parameter, or in
//     device memory;
//   - Triton passes two pointers to scratch memory after the kernel's own arguments (0 where its metadata asks
//     for no scratch), and for a tensor descriptor a tensor map, the sizes (int32) and the strides (int64).
//
// Not there: textures and surfaces, launches from kernels, recursion, 32-bit generic addresses, and
// linking: a module stands for itself. What it may leave to the driver: printf, __assertfail, malloc and free, and
// of libcudadevrt cudaMalloc, cudaFree, cudaGetLastError and what cooperative groups call (cudaCGSynchronize, ...).
//
// Calls that cannot be carried out (freed buffer, unknown function, impossible launch) throw
// imbrex::LaunchError; PTX that does not parse throws ParseError, PTX that the machine does not model throws
// CompileError naming the instruction and its line. What a kernel does wrong never throws: it is in the
// Report.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "imbrex/core/parse_error.h"
#include "imbrex/core/tensor_map.h"
#include "imbrex/vgpu/options.h"
#include "imbrex/vgpu/report.h"
#include "imbrex/vgpu/stream_order.h"
#include "imbrex/vgpu/timeline.h"

namespace imbrex::vgpu {

/// An address in the virtual device's global memory, as kernels see it. Never a host pointer.
using DeviceAddress = uint64_t;

/// Extents in x, y, z. `{256}` is 256×1×1.
struct Dim3 {
  int64_t x = 1, y = 1, z = 1;
  constexpr int64_t count() const { return x * y * z; }
  friend constexpr bool operator==(const Dim3&, const Dim3&) = default;
};

/// What the driver would tell about a kernel.
struct FunctionAttributes {
  int64_t static_shared_bytes = 0;
  int64_t local_bytes = 0;  // per thread
  int64_t parameter_bytes = 0;
  int64_t max_dynamic_shared_bytes = 0;  // see Function::set_max_dynamic_shared
  int max_threads = 1024;                // .maxntid, else 1024
  Dim3 required_block{0, 0, 0};          // .reqntid, else zeros
  Dim3 required_cluster{0, 0, 0};        // .reqnctapercluster, else zeros
  int registers_declared = 0;            // 32-bit PTX registers; virtual, so no occupancy follows from it
  int64_t constant_bytes = 0;            // of the `.const` variables that it or its functions name
};

/// One kernel parameter in the parameter buffer.
struct Parameter {
  std::string name;
  int64_t offset = 0, bytes = 0, alignment = 1;
};

class Grid;
class VirtualNode;

namespace detail {
struct ModuleData;
struct FunctionData;
struct GpuData;
}  // namespace detail

/// A kernel of a loaded module. A handle: cheap to copy, keeps its module alive.
class Function {
 public:
  Function() = default;
  const std::string& name() const;
  FunctionAttributes attributes() const;
  /// The parameters in order, with the offsets of the raw buffer.
  const std::vector<Parameter>& parameters() const;
  /// Allows launches with up to `bytes` of dynamic shared memory (48 KiB minus static without it).
  /// Throws LaunchError where the target has less.
  void set_max_dynamic_shared(int64_t bytes);

 private:
  friend class VirtualGpu;
  friend class Module;
  std::shared_ptr<detail::FunctionData> data_;
};

enum class VariableKind : uint8_t {
  kDevice,    // `.global`
  kManaged,   // `__managed__` in CUDA: `.global`, and the host may touch it at the same address
  kConstant,  // `.const`
};

/// Where a module's `.global` or `.const` variable lives.
struct GlobalVariable {
  DeviceAddress address = 0;
  int64_t bytes = 0;
  VariableKind kind = VariableKind::kDevice;
};

/// Loaded PTX. A handle: cheap to copy.
class Module {
 public:
  Module() = default;
  /// The entry of that name; LaunchError with the nearest name when there is none.
  Function function(std::string_view name) const;
  /// Names of all entries, in the text's order.
  std::vector<std::string> function_names() const;
  /// The module-scope variable of that name; LaunchError when there is none.
  GlobalVariable global(std::string_view name) const;
  /// All of them with their names, in the text's order.
  std::vector<std::pair<std::string, GlobalVariable>> globals() const;

 private:
  friend class VirtualGpu;
  std::shared_ptr<detail::ModuleData> data_;
};

/// One launch. Give either `arguments` (one pointer to each argument's value, as cuLaunchKernel's
/// kernelParams; read as many bytes as the parameter has, during the call) or `parameter_buffer` (laid out as
/// Function::parameters says, at least FunctionAttributes::parameter_bytes long).
struct Launch {
  Dim3 grid = {};     // in CTAs
  Dim3 cluster = {};  // in CTAs; must divide the grid. {1,1,1} takes the kernel's .reqnctapercluster
  Dim3 block = {};    // in threads, at most 1024; .reqntid and .maxntid are checked
  int64_t dynamic_shared_bytes = 0;  // behind the static variables: what `.extern .shared` arrays name
  /// All CTAs are resident at once, so that they may wait for one another (cooperative groups' grid.sync());
  /// LaunchError where they do not fit. Without it CTAs must not wait for later ones.
  bool cooperative = false;
  /// The launch has a cluster attribute, if only for clusters of one CTA: %is_explicit_cluster, and on sm_90 copies from
  /// shared memory to .shared::cluster, st.async and red.async are illegal without. Implied by larger clusters and by
  /// .reqnctapercluster.
  bool explicit_cluster = false;
  std::span<void* const> arguments = {};
  std::span<const std::byte> parameter_buffer = {};
  /// The stream of VirtualGpu::order() that the launch is on: what it touches is judged with what other calls
  /// touched, and the report has the races. Without one the host counts as waiting for it, and nothing is judged.
  std::optional<StreamOrder::Stream> stream = {};
  SourceLocation where = {};  ///< of the call in the host program, for such findings
};

using imbrex::TensorMapInterleave;
using imbrex::TensorMapSwizzle;
using imbrex::TensorMapType;

/// The 128-byte object that TMA instructions take, encoded as the driver encodes it. Pass it by value as a
/// kernel parameter, or copy it to device memory, aligned to 64 bytes (PTX ISA, "Tensors").
struct alignas(64) TensorMap {
  std::array<uint64_t, 16> words{};
};

/// The arguments of cuTensorMapEncodeTiled, with the same meaning: a tensor in global memory, and the box of
/// it that one copy moves. Coordinates in the kernel count elements, innermost first, and may lie outside.
struct TensorMapArguments {
  TensorMapType type = TensorMapType::kFloat16;
  DeviceAddress address = 0;
  std::span<const uint64_t> dims = {};             // elements, innermost first; 1 to 5 of them
  std::span<const uint64_t> strides_bytes = {};    // of dimensions 1.. : one fewer than dims
  std::span<const uint32_t> box = {};              // elements per dimension, at most 256
  std::span<const uint32_t> element_strides = {};  // empty: all 1
  TensorMapInterleave interleave = TensorMapInterleave::kNone;
  TensorMapSwizzle swizzle = TensorMapSwizzle::kNone;
  int l2_promotion = 0;        // a hint; kept, not used
  bool fill_with_nan = false;  // out-of-bounds elements of floating-point types are NaN, not zero
};

/// Encodes a tiled tensor map. Throws LaunchError naming the rule where the driver would refuse.
TensorMap encode_tensor_map(const TensorMapArguments& arguments);

/// The arguments of cuTensorMapEncodeIm2col, with the same meaning: a tensor of 3 to 5 dimensions (channels, width,
/// [height, [depth,]] images), and the column of pixels that one copy moves (PTX ISA, "im2col mode"). The pixels are
/// those of a pixel box, which reaches from lower_corner to extent - 1 + upper_corner in each dimension between the
/// channels and the images; a copy starts at its coordinates and goes through the box row by row, then on to the next
/// image. The instruction's offsets are added to each pixel.
struct Im2colMapArguments {
  TensorMapType type = TensorMapType::kFloat16;
  DeviceAddress address = 0;
  std::span<const uint64_t> dims = {};           // elements, innermost first; 3 to 5 of them
  std::span<const uint64_t> strides_bytes = {};  // of dimensions 1.. : one fewer than dims
  std::span<const int32_t> lower_corner = {};    // of the dimensions between: two fewer than dims
  std::span<const int32_t> upper_corner = {};
  uint32_t channels = 0;                           // of each pixel, at most 256
  uint32_t pixels = 0;                             // at most 1024
  std::span<const uint32_t> element_strides = {};  // from pixel to pixel; empty: all 1
  TensorMapInterleave interleave = TensorMapInterleave::kNone;
  TensorMapSwizzle swizzle = TensorMapSwizzle::kNone;
  int l2_promotion = 0;        // a hint; kept, not used
  bool fill_with_nan = false;  // out-of-bounds elements of floating-point types are NaN, not zero
};

/// Encodes an im2col tensor map. Throws LaunchError naming the rule where the driver would refuse.
TensorMap encode_tensor_map(const Im2colMapArguments& arguments);

/// A device with its memory. Calls on one device are not to be made from several threads at once; launches
/// are synchronous.
class VirtualGpu {
 public:
  explicit VirtualGpu(Options options = {});
  ~VirtualGpu();
  VirtualGpu(VirtualGpu&&) noexcept;
  VirtualGpu& operator=(VirtualGpu&&) noexcept;

  const Options& options() const;
  /// Changes seed, checkers, budget, tensor arithmetic or host threads for later launches. Target and memory
  /// size stay as they were made: LaunchError when they differ.
  void set_options(const Options& options);

  /// Memory for the kernels, aligned to 256 bytes, with guard gaps on both sides. Contents are undefined.
  DeviceAddress allocate(int64_t bytes);
  /// Memory that kernels and host code both use, at the same address: what the host writes there, kernels read. For
  /// CUDA's managed and pinned memory. LaunchError where something else of the process lies at that address.
  DeviceAddress allocate_host_visible(int64_t bytes);
  /// How much malloc in kernels may allocate at once: 8 MiB unless set_heap_bytes() was called, as by
  /// cudaDeviceSetLimit(cudaLimitMallocHeapSize). LaunchError once a kernel that allocates has been launched.
  int64_t heap_bytes() const;
  void set_heap_bytes(int64_t bytes);
  /// Ends the heap, with all that kernels have allocated and not freed; later accesses are use after free.
  void drop_heap();
  // Addresses and memory apart, as in CUDA's virtual memory management, and memory of other processes. Addresses, extents
  // and offsets are multiples of 4096 bytes; the memory is that of a file (memfd_create), whose descriptor stays the
  // caller's.

  /// Addresses without memory: accesses are out of bounds until something is mapped there. LaunchError when there are no
  /// more of them.
  DeviceAddress reserve_addresses(int64_t bytes, int64_t alignment = 4096);
  /// Makes `bytes` of the file, from `offset` on, the memory at reserved addresses; the same bytes may be mapped several
  /// times. Mappings side by side are one allocation to kernels. LaunchError where it cannot be mapped.
  void map(DeviceAddress address, int64_t bytes, int file, int64_t offset);
  /// Ends a mapping of map(), of the same extent.
  void unmap(DeviceAddress address, int64_t bytes);
  /// From the first call on all memory lies in a file, and other processes of the user can map it with map(). Returns the
  /// file, which stays this object's; `offset` is where `address` lies in it.
  int shared_file(DeviceAddress address, int64_t& offset);

  /// Gives memory back; later accesses are use after free, whose findings name the call at `where`. LaunchError unless
  /// `address` came from allocate.
  void free(DeviceAddress address, SourceLocation where = {});
  /// Copies and fills. LaunchError when the bytes are not all inside one live allocation.
  void copy_to_device(DeviceAddress to, const void* from, int64_t bytes);
  void copy_from_device(void* to, DeviceAddress from, int64_t bytes) const;
  void copy_on_device(DeviceAddress to, DeviceAddress from, int64_t bytes);
  void fill(DeviceAddress to, uint8_t value, int64_t bytes);
  /// Makes the contents undefined, as those of memory just allocated: what a kernel reads before it is written is a
  /// finding. For memory that the host hands out again. LaunchError as of fill().
  void discard(DeviceAddress at, int64_t bytes);
  /// fill() with a 16- or 32-bit pattern, as the driver's memset D16 and D32.
  void fill16(DeviceAddress to, uint16_t value, int64_t count);
  void fill32(DeviceAddress to, uint32_t value, int64_t count);

  /// Loads PTX text for this device's target or an earlier one (for 'a' targets exactly this one); all
  /// entries are decoded, `.global` variables get memory and their initial values. `name` stands for the text
  /// in messages.
  Module load_module(std::string_view ptx, std::string_view name = "module.ptx");

  /// Runs a kernel to its end, or to where it cannot go on, and tells what happened. Memory keeps what the
  /// kernel wrote, findings or not. LaunchError where the driver would refuse the launch.
  Report launch(const Function& function, const Launch& launch);

  /// Streams and events for launches that are on one. Whoever hosts a program tells it of copies, fills, waits and
  /// stream-ordered frees as well, beside carrying them out; a free() that waits is synchronize(), as cuMemFree's.
  StreamOrder& order();
  /// What order() finds about the device's memory, with the names of the allocations; nothing where
  /// CheckSet::stream_order is off.
  std::vector<Finding> judge(StreamOrder::Stream stream, const HostCall& call, const Footprint& footprint);

 private:
  friend class VirtualNode;
  struct Prepared;  // a launch that has been checked
  /// One of the devices that share a node's memory.
  VirtualGpu(Options options, const VirtualNode& node, int rank);
  std::unique_ptr<Prepared> prepare(const Function& function, const Launch& launch);
  /// What is to be added to the report of a launch that has run, the n-th of the grid.
  void finish(const Prepared& prepared, Grid& grid, size_t n, Report& report);
  std::unique_ptr<detail::GpuData> data_;
};

}  // namespace imbrex::vgpu
