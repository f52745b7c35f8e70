// SPDX-License-Identifier: Apache-2.0
#include "runtime/package/package_c.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>

#include "imbrex/core/error.h"
#include "imbrex/core/version.h"
#include "ir/ir.h"

namespace imbrex::runtime {
namespace {

using codegen::CompiledKernel;
using codegen::HostStep;
using codegen::ParamPlan;

std::string c_type(const codegen::ArgumentInfo& argument) {
  if (argument.is_pointer) return "void*";
  if (argument.dtype == float32) return "float";
  if (argument.dtype == float64) return "double";
  if (argument.dtype.is_bool()) return "int";
  return fmt::format("{}int{}_t", argument.dtype.is_signed() ? "" : "u", argument.dtype.bits());
}

std::string c_parameters(const CompiledKernel& kernel) {
  std::string text = "void* stream";
  for (const codegen::ArgumentInfo& argument : kernel.arguments)
    text += fmt::format(", {} {}", c_type(argument), argument.name);
  return text;
}

/// `value` cut to an integer type and extended to 64 bits again.
std::string wrapped(DataType dtype, const std::string& value) {
  if (dtype.is_bool()) return fmt::format("(({}) != 0)", value);
  if (dtype.bits() == 64) return value;
  return fmt::format("(int64_t)({}int{}_t)({})", dtype.is_signed() ? "" : "u", dtype.bits(), value);
}

/// The step's value in C, of slots s[...] and arguments a[...]; division by zero is tested before.
std::string expression(const HostStep& step) {
  const std::string a = fmt::format("s[{}]", step.a), b = fmt::format("s[{}]", step.b);
  switch (step.kind) {
    case HostStep::Kind::kConstant:
      return fmt::format("INT64_C({})", step.constant == INT64_MIN ? step.constant + 1 : step.constant) +
             (step.constant == INT64_MIN ? " - 1" : "");
    case HostStep::Kind::kParam:
      return fmt::format("a[{}]", step.a);
    case HostStep::Kind::kSelect:
      return fmt::format("{} ? {} : s[{}]", a, b, step.c);
    case HostStep::Kind::kDivmodMagic:
      return fmt::format("divmod_magic((uint32_t){})", a);
    case HostStep::Kind::kUnary:
    case HostStep::Kind::kBinary:
      break;
  }
  const auto code = static_cast<ir::Opcode>(step.op);
  const char* type = step.dtype.is_signed() ? "int64_t" : "uint64_t";
  auto wrapping = [&](const char* op) {
    return fmt::format("(int64_t)((uint64_t){} {} (uint64_t){})", a, op, b);
  };
  auto typed = [&](const char* op) {
    return fmt::format("(int64_t)(({}){} {} ({}){})", type, a, op, type, b);
  };
  switch (code) {
    case ir::Opcode::kAdd:
      return wrapping("+");
    case ir::Opcode::kSub:
      return wrapping("-");
    case ir::Opcode::kMul:
      return wrapping("*");
    case ir::Opcode::kAnd:
      return wrapping("&");
    case ir::Opcode::kOr:
      return wrapping("|");
    case ir::Opcode::kXor:
      return wrapping("^");
    case ir::Opcode::kShl:
      return fmt::format("(uint64_t){} < {} ? (int64_t)((uint64_t){} << {}) : 0", b, step.dtype.bits(), a, b);
    case ir::Opcode::kShr:
      return fmt::format("(int64_t)(({}){} >> ((uint64_t){} < {} ? {} : 63))", type, a, b, step.dtype.bits(),
                         b);
    case ir::Opcode::kMin:
      return fmt::format("({}){} < ({}){} ? {} : {}", type, a, type, b, a, b);
    case ir::Opcode::kMax:
      return fmt::format("({}){} > ({}){} ? {} : {}", type, a, type, b, a, b);
    case ir::Opcode::kDiv:
      return step.dtype.is_signed()
                 ? fmt::format("{} == -1 ? (int64_t)(0 - (uint64_t){}) : {} / {}", b, a, a, b)
                 : typed("/");
    case ir::Opcode::kRem:
      return step.dtype.is_signed() ? fmt::format("{} == -1 ? 0 : {} % {}", b, a, b) : typed("%");
    case ir::Opcode::kCeilDiv:
      return fmt::format("(int64_t)(({0}){1} / ({0}){2} + (({0}){1} % ({0}){2} != 0))", type, a, b);
    case ir::Opcode::kEq:
      return fmt::format("{} == {}", a, b);
    case ir::Opcode::kNe:
      return fmt::format("{} != {}", a, b);
    case ir::Opcode::kLt:
      return fmt::format("{} < {}", a, b);
    case ir::Opcode::kLe:
      return fmt::format("{} <= {}", a, b);
    case ir::Opcode::kGt:
      return fmt::format("{} > {}", a, b);
    case ir::Opcode::kGe:
      return fmt::format("{} >= {}", a, b);
    case ir::Opcode::kNeg:
      return fmt::format("(int64_t)(0 - (uint64_t){})", a);
    case ir::Opcode::kNot:
      return step.dtype.is_bool() ? fmt::format("!{}", a) : fmt::format("~{}", a);
    case ir::Opcode::kAbs:
      return fmt::format("{} < 0 ? (int64_t)(0 - (uint64_t){}) : {}", a, a, a);
    case ir::Opcode::kCast:
      return a;
    default:
      throw InternalError(fmt::format("packaging: host step '{}'", ir::info(code).mnemonic));
  }
}

bool divides(const HostStep& step) {
  if (step.kind == HostStep::Kind::kDivmodMagic) return true;
  if (step.kind != HostStep::Kind::kBinary) return false;
  const auto code = static_cast<ir::Opcode>(step.op);
  return code == ir::Opcode::kDiv || code == ir::Opcode::kRem || code == ir::Opcode::kCeilDiv;
}

/// The slots' values in C, each followed by `suffix`.
std::string slot_list(const std::vector<int32_t>& slots, const char* suffix = "") {
  std::vector<std::string> words;
  for (int32_t slot : slots) words.push_back(fmt::format("(uint64_t)s[{}]{}", slot, suffix));
  return words.empty() ? "0" : fmt::format("{}", fmt::join(words, ", "));
}

/// The function that turns arguments into grid and parameter buffer: design D7, in C.
std::string plan_function(const PackagedVariant& variant) {
  const CompiledKernel& kernel = variant.kernel;
  std::string text = fmt::format(
      "static int plan_{}(const int64_t* a, unsigned char* params, unsigned grid[3]) {{\n  int64_t s[{}];\n  "
      "(void)a, (void)params, (void)s;\n",
      variant.target, std::max<size_t>(kernel.host.size(), 1));
  for (size_t i = 0; i < kernel.host.size(); ++i) {
    const HostStep& step = kernel.host[i];
    if (divides(step))
      text +=
          fmt::format("  if (s[{}] {} 0) return fail(\"a size that is divided by is zero or less\", 0);\n",
                      step.kind == HostStep::Kind::kDivmodMagic ? step.a : step.b,
                      step.kind == HostStep::Kind::kDivmodMagic ? "<=" : "==");
    text += fmt::format("  s[{}] = {};\n", i, wrapped(step.dtype, expression(step)));
  }
  for (int i = 0; i < 3; ++i) {
    if (kernel.grid_slots[i] < 0) {
      text += fmt::format("  grid[{}] = 1;\n", i);
      continue;
    }
    text += fmt::format(
        "  if (s[{0}] < 1 || s[{0}] > {1} || s[{0}] % {2} != 0) return fail(\"the grid these sizes give is "
        "not possible\", 0);\n"
        "  grid[{3}] = (unsigned)s[{0}];\n",
        kernel.grid_slots[i], i == 0 ? "INT64_C(2147483647)" : "65535", kernel.cluster[i], i);
  }
  for (const ParamPlan& param : kernel.params) {
    if (param.kind == ParamPlan::Kind::kTensorMap) {
      const codegen::TensorMapPlan& map = kernel.tensor_maps[param.index];
      if (map.is_stored)
        text += fmt::format(
            "  if (s[{}] * {} % 128 != 0) return fail(\"a tensor that TMA stores to has rows that are no \"\n"
            "                                     \"multiple of 16 bytes\", 0);\n",
            map.dim_slots.front(), map.dtype.bits());
      // Strides are counted in bits here, in bytes by the driver.
      text += fmt::format(
          "  {{\n    const uint64_t dims[] = {{{}}}, strides[] = {{{}}};\n    const uint32_t box[] = "
          "{{{}}};\n"
          "    const int failure = encode_map(params + {}, {}, {}, (uint64_t)s[{}], dims, strides, box, {}, "
          "{}, {}, {});\n"
          "    if (failure != 0) return failure;\n  }}\n",
          slot_list(map.dim_slots), slot_list(map.stride_slots, " / 8"), fmt::join(map.box, ", "),
          param.offset, map.driver_type, map.rank, map.base_slot, map.interleave, map.swizzle,
          map.l2_promotion, map.oob_fill);
    } else {
      text += fmt::format("  memcpy(params + {}, &{}[{}], {});\n", param.offset,
                          param.kind == ParamPlan::Kind::kUser ? "a" : "s", param.index, param.bytes);
    }
  }
  text += "  return 0;\n}\n\n";
  std::vector<int32_t> offsets;
  for (const ParamPlan& param : kernel.params) offsets.push_back(param.offset);
  if (offsets.empty()) offsets.push_back(0);
  return text + fmt::format("static const unsigned offsets_{}[] = {{{}}};\n\n", variant.target,
                            fmt::join(offsets, ", "));
}

/// What the driver loads: machine code, or PTX as text that ends with a zero.
std::string loadable(const PackagedVariant& variant) {
  return variant.cubin.empty() ? variant.kernel.ptx + '\0' : variant.cubin;
}

std::string byte_array(const std::string& name, const std::string& bytes) {
  std::string text = fmt::format("static const unsigned char {}[{}] = {{", name, bytes.size());
  for (size_t i = 0; i < bytes.size(); ++i)
    text += fmt::format("{}{},", i % 24 == 0 ? "\n  " : "",
                        static_cast<unsigned>(static_cast<unsigned char>(bytes[i])));
  return text + "\n};\n\n";
}

// Everything that is the same in every package. NAME stands for the kernel's name.
constexpr const char* kDriver = R"C(
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* The CUDA driver, by its ABI; no header of it is needed. */
typedef struct { int id; char pad[4]; union { unsigned cluster[3]; char bytes[64]; } value; } Attribute;
typedef struct {
  unsigned grid[3], block[3], shared_bytes;
  void* stream;
  Attribute* attributes;
  unsigned attribute_count;
} Config;

static struct {
  int (*cuInit)(unsigned);
  int (*cuCtxGetCurrent)(void**);
  int (*cuCtxSetCurrent)(void*);
  int (*cuCtxGetDevice)(int*);
  int (*cuDevicePrimaryCtxRetain)(void**, int);
  int (*cuDeviceGetAttribute)(int*, int, int);
  int (*cuModuleLoadData)(void**, const void*);
  int (*cuModuleUnload)(void*);
  int (*cuModuleGetFunction)(void**, void*, const char*);
  int (*cuFuncSetAttribute)(void*, int, int);
  int (*cuLaunchKernelEx)(const Config*, void*, void**, void**);
  int (*cuGetErrorName)(int, const char**);
  int (*cuTensorMapEncodeTiled)(void*, int, uint32_t, void*, const uint64_t*, const uint64_t*, const uint32_t*,
                                const uint32_t*, int, int, int, int);
} cuda;

static char error_text[256] = "";

static int fail(const char* what, int result) {
  const char* name = 0;
  if (result != 0 && cuda.cuGetErrorName) cuda.cuGetErrorName(result, &name);
  snprintf(error_text, sizeof error_text, "NAME: %s%s%s", what, name ? ": " : "", name ? name : "");
  return result != 0 ? result : 1;
}

static int find_driver(void) {
  static const char* const names[] = {"cuInit", "cuCtxGetCurrent", "cuCtxSetCurrent", "cuCtxGetDevice",
                                      "cuDevicePrimaryCtxRetain", "cuDeviceGetAttribute", "cuModuleLoadData",
                                      "cuModuleUnload", "cuModuleGetFunction", "cuFuncSetAttribute",
                                      "cuLaunchKernelEx", "cuGetErrorName", "cuTensorMapEncodeTiled"};
  void* library = dlopen("libcuda.so.1", RTLD_NOW);
  size_t i;
  if (!library) return fail("no CUDA driver (libcuda.so.1)", 0);
for (i = 0; i < sizeof names / sizeof *names; ++i) {
  void* function = dlsym(library, names[i]);
  if (!function) return fail("the CUDA driver is too old", 0);
  memcpy((char*)&cuda + i * sizeof function, &function, sizeof function);
}
return 0;
}
)C";

constexpr const char* kMagic = R"C(
/* Multiplier and shift by which the kernel divides. */
static int64_t divmod_magic(uint32_t divisor) {
  int shift = 0;
  while (shift < 32 && (UINT64_C(1) << shift) < divisor) ++shift;
  return (int64_t)((((UINT64_C(1) << (31 + shift)) + divisor - 1) / divisor & 0xFFFFFFFFu) | (uint64_t)shift << 32);
}
)C";

constexpr const char* kEncode = R"C(
static int encode_map(void* out, int type, uint32_t rank, uint64_t base, const uint64_t* dims, const uint64_t* strides,
                      const uint32_t* box, int interleave, int swizzle, int promotion, int fill) {
  static const uint32_t ones[5] = {1, 1, 1, 1, 1};
  int64_t aligned[16 + 8];  /* the driver wants 64-byte alignment */
  void* map = (void*)(((uintptr_t)aligned + 63) & ~(uintptr_t)63);
  const int result = cuda.cuTensorMapEncodeTiled(map, type, rank, (void*)(uintptr_t)base, dims, strides, box, ones,
                                                 interleave, swizzle, promotion, fill);
  if (result != 0) return fail("an address or stride that no tensor map can have (16-byte alignment)", result);
memcpy(out, map, 128);
return 0;
}
)C";

constexpr const char* kApi = R"C(
static void* module = 0;
static void* function = 0;
static const Variant* variant = 0;

const char* NAME_error(void) { return error_text; }

int NAME_load(void) {
  void* context = 0;
  int device = 0, major = 0, minor = 0, result;
  size_t i;
  if (function) return 0;
  if (!cuda.cuInit && (result = find_driver()) != 0) return result;
  if ((result = cuda.cuInit(0)) != 0) return fail("cuInit", result);
  if (cuda.cuCtxGetCurrent(&context) != 0 || !context) {
    if ((result = cuda.cuDevicePrimaryCtxRetain(&context, 0)) != 0) return fail("CUDA device 0", result);
    if ((result = cuda.cuCtxSetCurrent(context)) != 0) return fail("context", result);
  }
  if ((result = cuda.cuCtxGetDevice(&device)) != 0) return fail("device", result);
  cuda.cuDeviceGetAttribute(&major, 75, device);
  cuda.cuDeviceGetAttribute(&minor, 76, device);
  variant = 0;
  for (i = 0; i < sizeof variants / sizeof *variants; ++i) {
    const Variant* v = &variants[i];
    const int runs = v->is_specific ? v->sm == 10 * major + minor : v->sm / 10 == major && v->sm % 10 <= minor;
    if (runs && (!variant || v->sm > variant->sm || v->is_specific)) variant = v;
  }
  if (!variant) return fail("not built for this GPU; it is built for TARGETS", 0);
  if ((result = cuda.cuModuleLoadData(&module, variant->code)) != 0) return fail("loading", result);
  if ((result = cuda.cuModuleGetFunction(&function, module, "NAME")) != 0) return fail("loading", result);
  if (variant->shared_bytes > 48 * 1024 &&
      (result = cuda.cuFuncSetAttribute(function, 8, (int)variant->shared_bytes)) != 0)
    return fail("shared memory", result);
  if (variant->cluster[0] * variant->cluster[1] * variant->cluster[2] > 8) cuda.cuFuncSetAttribute(function, 14, 1);
  return 0;
}

void NAME_unload(void) {
  if (module) cuda.cuModuleUnload(module);
  module = function = 0;
}

int NAME_launch(PARAMETERS) {
  int64_t a[ARGUMENTS];
  int64_t aligned[PARAM_WORDS];
  unsigned char* params = (unsigned char*)aligned;
  void* each[PARAM_COUNT];
  unsigned i;
  Attribute cluster;
  Config config;
  int result = NAME_load();
  if (result != 0) return result;
  memset(a, 0, sizeof a);
FILL
  memset(&config, 0, sizeof config);
  if ((result = variant->plan(a, params, config.grid)) != 0) return result;
  /* One by one: the driver knows where the device has those that are aligned to 64 bytes. */
  for (i = 0; i < variant->param_count; ++i) each[i] = params + variant->offsets[i];
  config.block[0] = variant->threads, config.block[1] = config.block[2] = 1;
  config.shared_bytes = variant->shared_bytes;
  config.stream = stream;
  if (variant->cluster[0] * variant->cluster[1] * variant->cluster[2] > 1) {
    memset(&cluster, 0, sizeof cluster);
    cluster.id = 4;
    memcpy(cluster.value.cluster, variant->cluster, sizeof variant->cluster);
    config.attributes = &cluster;
    config.attribute_count = 1;
  }
  result = cuda.cuLaunchKernelEx(&config, function, each, 0);
  return result != 0 ? fail("launch", result) : 0;
}
)C";

std::string replaced(std::string text, const std::string& word, const std::string& by) {
  for (size_t at = 0; (at = text.find(word, at)) != std::string::npos; at += by.size())
    text.replace(at, word.size(), by);
  return text;
}

/// One line of a C comment.
std::string comment(std::string text) { return replaced(std::move(text), "*/", "* /"); }

}  // namespace

std::string package_header(const CompiledKernel& kernel, const std::string& about) {
  std::string guard = kernel.name + "_H";
  std::transform(guard.begin(), guard.end(), guard.begin(), [](unsigned char c) { return std::toupper(c); });
  std::string needs;
  for (const codegen::ArgumentInfo& argument : kernel.arguments)
    if (argument.is_pointer)
      needs += fmt::format(" *   {}: a device address, a multiple of {} bytes\n", argument.name,
                           argument.alignment);
  return fmt::format(
      R"C(/* {0}: {1}.
 * Built by Imbrex {2}. Compile {0}.c into your program and link with -ldl; a CUDA driver is needed at run time only. */
#ifndef {3}
#define {3}

#include <stdint.h>

#ifdef __cplusplus
extern "C" {{
#endif

/* Loads the kernel into the current CUDA context, or into that of device 0 when there is none. Called by the first
 * launch, too. One context a process. Returns 0, or an error that {0}_error() describes. */
int {0}_load(void);

/* Launches on `stream` (a CUstream or cudaStream_t; NULL for the default one) without waiting. Returns as {0}_load().
{5} */
int {0}_launch({4});

void {0}_unload(void);

/* The last error in words. */
const char* {0}_error(void);

#ifdef __cplusplus
}}
#endif

#endif
)C",
      kernel.name, comment(about), version(), guard, c_parameters(kernel), needs);
}

std::string package_loader(const std::vector<PackagedVariant>& variants, const std::string& about) {
  const CompiledKernel& first = variants[0].kernel;
  std::string text = fmt::format("/* {0}: {1}. Built by Imbrex {2}; see {0}.h. */\n#include \"{0}.h\"\n",
                                 first.name, comment(about), version());
  text += kDriver;
  bool has_maps = false, has_magic = false;
  size_t param_bytes = 8, param_count = 1;
  std::vector<std::string> targets;
  for (const PackagedVariant& variant : variants) {
    has_maps = has_maps || !variant.kernel.tensor_maps.empty();
    for (const HostStep& step : variant.kernel.host)
      has_magic = has_magic || step.kind == HostStep::Kind::kDivmodMagic;
    param_bytes = std::max<size_t>(param_bytes, static_cast<size_t>(variant.kernel.param_bytes));
    param_count = std::max(param_count, variant.kernel.params.size());
    targets.push_back(variant.target);
  }
  if (has_magic) text += kMagic;
  if (has_maps) text += kEncode;
  text += "\n";
  for (const PackagedVariant& variant : variants)
    text += plan_function(variant) + byte_array("code_" + variant.target, loadable(variant));
  text +=
      "typedef struct {\n  int sm, is_specific;\n  const unsigned char* code;\n"
      "  int (*plan)(const int64_t*, unsigned char*, unsigned[3]);\n"
      "  unsigned threads, cluster[3], shared_bytes, param_count;\n  const unsigned* offsets;\n} Variant;\n\n"
      "static const Variant variants[] = {\n";
  for (const PackagedVariant& variant : variants) {
    const CompiledKernel& kernel = variant.kernel;
    text += fmt::format("  {{{}, {}, code_{}, plan_{}, {}, {{{}, {}, {}}}, {}, {}, offsets_{}}},\n",
                        std::atoi(variant.target.c_str() + 3), variant.target.back() == 'a' ? 1 : 0,
                        variant.target, variant.target, kernel.threads, kernel.cluster[0], kernel.cluster[1],
                        kernel.cluster[2], kernel.shared_bytes, kernel.params.size(), variant.target);
  }
  text += "};\n";
  std::string fill;
  for (size_t i = 0; i < first.arguments.size(); ++i) {
    const codegen::ArgumentInfo& argument = first.arguments[i];
    if (argument.is_pointer)
      fill += fmt::format("  a[{}] = (int64_t)(uintptr_t){};\n", i, argument.name);
    else if (argument.dtype.is_float())
      fill += fmt::format("  memcpy(&a[{}], &{}, sizeof {});\n", i, argument.name, argument.name);
    else if (argument.dtype.is_bool())
      fill += fmt::format("  a[{}] = {} != 0;\n", i, argument.name);
    else
      fill += fmt::format("  a[{}] = (int64_t){};\n", i, argument.name);
  }
  std::string api = replaced(kApi, "PARAMETERS", c_parameters(first));
  api = replaced(api, "ARGUMENTS", std::to_string(std::max<size_t>(first.arguments.size(), 1)));
  api = replaced(api, "PARAM_WORDS", std::to_string((param_bytes + 7) / 8));
  api = replaced(api, "PARAM_COUNT", std::to_string(param_count));
  api = replaced(api, "TARGETS", fmt::format("{}", fmt::join(targets, ", ")));
  api = replaced(api, "FILL\n", fill);
  return replaced(text + api, "NAME", first.name);
}

}  // namespace imbrex::runtime
