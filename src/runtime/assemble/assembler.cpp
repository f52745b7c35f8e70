// SPDX-License-Identifier: Apache-2.0
#include "runtime/assemble/assembler.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <chrono>
#include <nlohmann/json.hpp>

#include "core/sha256.h"
#include "imbrex/core/error.h"
#include "imbrex/core/find_tool.h"
#include "imbrex/core/version.h"
#include "runtime/assemble/ptx_lines.h"
#include "runtime/host/files.h"
#include "runtime/host/process.h"

namespace imbrex::runtime {
namespace {

constexpr double kTimeout = 120;  // seconds; the largest kernels take a few

class Ptxas : public Assembler {
 public:
  Ptxas(std::string path, std::string version) : path_(std::move(path)), version_(std::move(version)) {}

  std::string name() const override { return "ptxas " + version_; }
  int cuda_version() const override {
    int major = 0, minor = 0;
    std::sscanf(version_.c_str(), "%d.%d", &major, &minor);
    return 1000 * major + 10 * minor;
  }

  Cubin assemble(const codegen::CompiledKernel& kernel, const std::string& target,
                 bool has_lines) const override {
    const TemporaryFolder folder;
    const std::string source = folder.path() + "/kernel.ptx", result = folder.path() + "/kernel.cubin";
    if (const int failure = write_file_whole(source, kernel.ptx); failure != 0)
      throw DeviceError(Diagnostic{{},
                                   fmt::format("cannot write {}: {}", source, std::strerror(failure)),
                                   {},
                                   "free space, or set TMPDIR"});
    const auto begin = std::chrono::steady_clock::now();
    std::vector<std::string> command{path_, "-v", "-arch=" + target, source, "-o", result};
    command.emplace_back(has_lines ? "-lineinfo" : "-suppress-debug-info");
    ProcessResult ran = run_process(command, kTimeout);
    Cubin cubin;
    cubin.milliseconds =
        std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
    if (ran.timed_out)
      throw CompileError(
          Diagnostic{kernel.where,
                     fmt::format("assembling {}: ptxas took more than {} s", kernel.name, kTimeout),
                     {},
                     "unroll less, or use smaller tiles"});
    std::optional<std::string> bytes = read_file(result);
    if (ran.exit_code != 0 || !bytes)
      throw assembly_error(kernel, ran.output, fmt::format("ptxas ended with exit code {}", ran.exit_code));
    cubin.bytes = std::move(*bytes);
    cubin.log_text = std::move(ran.output);
    cubin.assembler = name();
    return cubin;
  }

 private:
  std::string path_, version_;
};

/// "13.0.88" of `ptxas --version`, kept in the cache since asking takes 10 to 60 ms; "" where the program
/// is not ptxas.
std::string ptxas_version(const std::string& path) {
  struct stat status;
  if (stat(path.c_str(), &status) != 0) return "";
  const CacheKey key{"tool",
                     "ptxas",
                     {{"path", path},
                      {"bytes", std::to_string(status.st_size)},
                      {"modified", fmt::format("{}.{}", status.st_mtim.tv_sec, status.st_mtim.tv_nsec)}}};
  if (std::optional<std::string> known = Cache::shared().load(key)) return *known;
  const ProcessResult ran = run_process({path, "--version"}, 10);
  const size_t at = ran.output.find(", V");  // "Cuda compilation tools, release 13.0, V13.0.88"
  if (ran.exit_code != 0 || at == std::string::npos) return "";
  std::string version = ran.output.substr(at + 3);
  version = version.substr(0, version.find_first_not_of("0123456789."));
  Cache::shared().store(key, version);
  return version;
}

struct FoundPtxas {
  std::unique_ptr<Ptxas> ptxas;
  std::string why_not;

  FoundPtxas() {
    const CudaTool tool = find_cuda_tool("ptxas");
    why_not = tool.why_not;
    if (tool.path.empty()) return;
    const std::string version = ptxas_version(tool.path);
    if (version.empty())
      why_not = tool.path + " does not answer --version as ptxas does";
    else
      ptxas = std::make_unique<Ptxas>(tool.path, version);
  }
};

}  // namespace

std::string pack_cubin(const Cubin& cubin) {
  const nlohmann::json facts = {{"log", cubin.log_text}, {"ms", cubin.milliseconds}};
  return facts.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n" + cubin.bytes;
}

std::optional<Cubin> unpack_cubin(const std::string& payload) {
  const size_t newline = payload.find('\n');
  const nlohmann::json facts = nlohmann::json::parse(payload.substr(0, newline), nullptr, false);
  if (newline == std::string::npos || facts.is_discarded()) return std::nullopt;
  Cubin cubin;
  cubin.bytes = payload.substr(newline + 1);
  cubin.log_text = facts.value("log", "");
  cubin.milliseconds = facts.value("ms", 0.0);
  cubin.from_cache = true;
  return cubin;
}

const Assembler* find_ptxas(std::string* why_not) {
  static const FoundPtxas found;
  if (why_not != nullptr) *why_not = found.why_not;
  return found.ptxas.get();
}

CacheKey cubin_key(const std::string& kernel_name, const std::string& ptx_digest, const std::string& target,
                   const std::string& assembler) {
  return {"cubin",
          ptx_digest.substr(0, 2),
          {{"kernel", kernel_name},
           {"target", target},
           {"ptx", ptx_digest},
           {"assembler", assembler},
           {"options", "-lineinfo"},
           {"imbrex", version()}}};
}

namespace {

void check_performance(const codegen::CompiledKernel& kernel, const Cubin& cubin,
                       const AssemblerTolerance& tolerance) {
  AssemblerLog log = cubin.log();
  if (std::vector<Diagnostic> errors = performance_errors(kernel, log, tolerance); !errors.empty())
    throw PerformanceError(std::move(errors), std::move(log));
}

}  // namespace

std::optional<Cubin> cached_cubin(const std::string& assembler, const codegen::CompiledKernel& kernel,
                                  const std::string& ptx_digest, const std::string& target, Cache& cache,
                                  const AssemblerTolerance& tolerance) {
  const std::optional<std::string> payload =
      cache.load(cubin_key(kernel.name, ptx_digest, target, assembler));
  std::optional<Cubin> cubin = payload ? unpack_cubin(*payload) : std::nullopt;
  if (!cubin) return std::nullopt;
  cubin->assembler = assembler;
  check_performance(kernel, *cubin, tolerance);
  return cubin;
}

Cubin assemble_cached(const Assembler& assembler, const codegen::CompiledKernel& kernel,
                      const std::string& target, Cache& cache, const AssemblerTolerance& tolerance) {
  const std::string digest = sha256(kernel.ptx);
  if (std::optional<Cubin> kept = cached_cubin(assembler.name(), kernel, digest, target, cache, tolerance))
    return std::move(*kept);
  Cubin cubin = assembler.assemble(kernel, target);
  cache.store(cubin_key(kernel.name, digest, target, assembler.name()), pack_cubin(cubin));
  cubin.assembler = assembler.name();
  check_performance(kernel, cubin, tolerance);
  return cubin;
}

Cubin assemble_to_ship(const Assembler& assembler, const codegen::CompiledKernel& kernel) {
  Cubin cubin = assembler.assemble(kernel, kernel.target, false);
  cubin.assembler = assembler.name();
  check_performance(kernel, cubin, {});
  return cubin;
}

}  // namespace imbrex::runtime
