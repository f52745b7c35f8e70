// SPDX-License-Identifier: Apache-2.0
// What the compiler hands to the runtime: PTX and everything a launch needs to know.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "imbrex/core/dtype.h"
#include "imbrex/core/source_location.h"
#include "imbrex/core/tensor_map.h"
#include "ir/op_info.h"

namespace imbrex::codegen {

/// One step of the program that the runtime evaluates at each launch: a pure op on 64-bit slots.
struct HostStep {
  enum class Kind : uint8_t {
    kConstant,  // slot = constant
    kParam,     // slot = user argument `a`: integers extended to 64 bits by their type, pointers as they are
    kBinary,    // slot = op(slot a, slot b), wrapped to `dtype`
    kUnary,
    kSelect,       // slot = slot a ? slot b : slot c
    kDivmodMagic,  // slot = multiplier | shift << 32 for division by slot a (see codegen/values/fast_divmod.h)
  };
  Kind kind;
  ir::Opcode op = ir::Opcode::kConst;  // of kBinary and kUnary
  DataType dtype = int64;
  int32_t a = 0, b = 0, c = 0;
  int64_t constant = 0;
  SourceLocation where;  // for messages such as a division by zero
};

/// A TMA descriptor the runtime encodes at launch. Dimensions run innermost first, as the driver counts them.
struct TensorMapPlan {
  DataType dtype;
  TensorMapType driver_type = TensorMapType::kUInt8;
  bool is_padded = false;  // 16 elements of less than a byte take 16 bytes of shared memory
  bool is_stored = false;  // copies go to the tensor, too
  int rank = 0;
  int32_t base_slot = 0;              // host slot of the pointer
  std::vector<int32_t> dim_slots;     // extents in elements
  std::vector<int32_t> stride_slots;  // strides of dimensions 1 ... rank-1, in bits
  std::vector<int32_t> box;           // elements
  TensorMapSwizzle swizzle = TensorMapSwizzle::kNone;
  TensorMapInterleave interleave = TensorMapInterleave::kNone;
  TensorMapL2Promotion l2_promotion = TensorMapL2Promotion::kNone;
  TensorMapFill oob_fill = TensorMapFill::kZero;
  SourceLocation where;
};

/// One parameter of the PTX entry, in order.
struct ParamPlan {
  enum class Kind : uint8_t { kUser, kHost, kTensorMap };
  Kind kind;
  int32_t index;  // user argument, host slot, or tensor map
  int32_t offset, bytes;
};

/// What a kernel's global_view needs of a buffer, for checking a call.
struct BufferNeed {
  int32_t argument;                       // which pointer argument
  int32_t bytes_slot;                     // host slot of the number of bytes, counted from the pointer
  std::vector<int32_t> extents, strides;  // host slots, in elements, outermost first
  SourceLocation where;                   // the global_view
};

/// What the user passes, in order, for checking a call.
struct ArgumentInfo {
  std::string name;
  bool is_pointer = false;
  DataType dtype = int32;
  int32_t alignment = 1;  // bytes, of pointers: what the kernel's vector accesses and copies rely on
};

struct CompiledKernel {
  std::string name;    // the PTX entry
  std::string target;  // "sm_100a"
  std::string ptx;
  int threads = 128;
  std::array<int, 3> cluster = {1, 1, 1};
  int64_t shared_bytes = 0;  // dynamic shared memory
  int tensor_memory_columns = 0;
  bool waits_for_grids = false;  // by griddepcontrol.wait: launched before the grid ahead of it has ended
  std::vector<ArgumentInfo> arguments;
  std::vector<HostStep> host;                        // slot i is the result of step i
  std::array<int32_t, 3> grid_slots = {-1, -1, -1};  // -1: extent 1
  std::vector<TensorMapPlan> tensor_maps;
  std::vector<BufferNeed> buffers;
  std::vector<ParamPlan> params;
  int32_t param_bytes = 0;
  SourceLocation where;  // the kernel's operator()
};

}  // namespace imbrex::codegen
