// SPDX-License-Identifier: Apache-2.0
// From PTX to the machine code of one target: by ptxas processes where it is installed (several at once),
// else by the driver, which does one at a time. The results are kept in the cache.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "codegen/compiled_kernel.h"
#include "imbrex/runtime/cache.h"
#include "runtime/assemble/ptxas_log.h"
#include "runtime/driver/cuda_driver.h"

namespace imbrex::runtime {

struct Cubin {
  std::string bytes;
  std::string log_text;     ///< the assembler's, unread
  std::string assembler;    ///< "ptxas 13.0.88"
  double milliseconds = 0;  ///< what assembling took, when it was done
  bool from_cache = false;

  AssemblerLog log() const { return read_assembler_log(log_text); }
};

/// As an entry of a cache; none where the payload is not one.
std::string pack_cubin(const Cubin& cubin);
std::optional<Cubin> unpack_cubin(const std::string& payload);

class Assembler {
 public:
  virtual ~Assembler() = default;
  /// With its version, as it stands in the cache's keys: "ptxas 13.0.88".
  virtual std::string name() const = 0;
  /// The CUDA version whose drivers load its machine code: 13000 for 13.0.
  virtual int cuda_version() const = 0;
  /// Throws CompileError with the assembler's messages at the kernel's lines, and for one that hangs.
  /// With `has_lines`, as profilers want it, machine code has tables of lines and the PTX: two thirds of its size.
  virtual Cubin assemble(const codegen::CompiledKernel& kernel, const std::string& target,
                         bool has_lines = true) const = 0;
};

/// The ptxas that find_cuda_tool() finds (core/find_tool.h); null, with the reason, where there is none.
/// Thread-safe: each assemble() is a process of its own.
const Assembler* find_ptxas(std::string* why_not = nullptr);
/// The driver, for the device of the current context.
std::unique_ptr<Assembler> driver_assembler(const CudaDriver& driver);

/// What a cubin depends on. `ptx_digest`: the SHA-256 of its PTX.
CacheKey cubin_key(const std::string& kernel_name, const std::string& ptx_digest, const std::string& target,
                   const std::string& assembler);

/// From the cache, where it is known by the digest of its PTX; none where it is not there. `kernel` needs no PTX. Throws
/// PerformanceError as assemble_cached().
std::optional<Cubin> cached_cubin(const std::string& assembler, const codegen::CompiledKernel& kernel,
                                  const std::string& ptx_digest, const std::string& target, Cache& cache,
                                  const AssemblerTolerance& tolerance);
/// From the cache, else assembled and stored there. Throws CompileError as assemble() does, and
/// PerformanceError for spills and serialization that are not tolerated.
Cubin assemble_cached(const Assembler& assembler, const codegen::CompiledKernel& kernel,
                      const std::string& target, Cache& cache, const AssemblerTolerance& tolerance);
/// For the kernel's own target, without tables of lines. Throws as assemble_cached(), and tolerates nothing.
Cubin assemble_to_ship(const Assembler& assembler, const codegen::CompiledKernel& kernel);

}  // namespace imbrex::runtime
