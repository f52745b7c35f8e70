// SPDX-License-Identifier: Apache-2.0
#include "cuda_host/image/image.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <fstream>
#include <optional>
#include <set>

#include "cuda_host/abi/api_error.h"
#include "ptx/insns.h"
#include "ptx/link.h"
#include "ptx/reader.h"
#include "ptx/writer.h"

namespace imbrex::cuda {
namespace {

constexpr std::string_view kElfMagic =
    "\x7f"
    "ELF";
constexpr uint32_t kLinkedWrapper = 2;  // the version of a wrapper whose `more` is a list
constexpr uint64_t kMostImageBytes = uint64_t{1} << 32;

/// The host structure that nvcc makes around a fat binary.
struct Wrapper {
  uint32_t magic, version;
  const void* binary;
  const void* more;
};

/// Bytes of this process that may not be there: what a corrupt header claims is copied without a fault.
std::vector<std::byte> copy_readable(const void* from, uint64_t bytes) {
  constexpr uint64_t kStep = 1 << 20;  // a header may claim gigabytes
  std::vector<std::byte> copy;
  uint64_t done = 0;
  while (done < bytes) {
    const uint64_t step = std::min(kStep, bytes - done);
    copy.resize(done + step);
    const iovec local{copy.data() + done, step};
    const iovec remote{const_cast<char*>(static_cast<const char*>(from)) + done, step};
    const ssize_t got = process_vm_readv(getpid(), &local, 1, &remote, 1, 0);
    if (got <= 0) break;
    done += static_cast<uint64_t>(got);
  }
  // Where a sandbox forbids the call, the header has to be believed.
  if (done == 0) {
    copy.resize(bytes);
    std::memcpy(copy.data(), from, bytes);
    return copy;
  }
  copy.resize(done);
  return copy;
}

/// What `.target` says: "sm_90a".
std::string target_of(std::string_view ptx) {
  const size_t at = ptx.find("\n.target");
  if (at == std::string_view::npos) return "";
  std::string_view rest = ptx.substr(at + 8);
  rest.remove_prefix(std::min(rest.find_first_not_of(" \t"), rest.size()));
  return std::string(rest.substr(0, rest.find_first_of(", \t\r\n;/")));
}

/// "libcublasLt.so.13" where the image is part of a library that the program has loaded; else "".
std::string library_of(const void* image) {
  Dl_info info{};
  if (image == nullptr || dladdr(image, &info) == 0 || info.dli_fname == nullptr) return "";
  const std::string_view path = info.dli_fname;
  const std::string_view name = path.substr(path.rfind('/') + 1);
  return name.starts_with("lib") && name.find(".so") != name.npos ? std::string(name) : "";
}

/// Whether cuBLAS is linked into the program itself: one of the variables that it reads from the environment stands in the file,
/// however much has been stripped.
bool has_cublas_inside() {
  // Put together here, that no program has it from this layer.
  const std::string trace = std::string(1, 'C').append("UBLASLT_LOG_LEVEL");
  constexpr size_t kStep = size_t{1} << 20;
  std::ifstream file("/proc/self/exe", std::ios::binary);
  std::string text;
  while (file) {
    const size_t kept = std::min(text.size(), trace.size());
    text.erase(0, text.size() - kept);
    text.resize(kept + kStep);
    file.read(text.data() + kept, static_cast<std::streamsize>(kStep));
    text.resize(kept + static_cast<size_t>(file.gcount()));
    if (text.find(trace) != std::string::npos) return true;
  }
  return false;
}

/// `image`: where it lies in the process, if anywhere.
[[noreturn]] void refuse_without_ptx(const std::vector<FatEntry>& entries, std::string_view target,
                                     const void* image = nullptr) {
  std::set<std::string> machine_code, ptx;
  for (const FatEntry& entry : entries)
    if (entry.kind == FatEntryKind::kPtx)
      ptx.insert(target_of(entry.text));
    else
      machine_code.insert(fmt::format("sm_{}", entry.sm));
  std::string arch(target.substr(3));
  if (const std::string library = library_of(image); !library.empty())
    refuse(CUDA_ERROR_NO_BINARY_FOR_GPU,
           fmt::format("{} has no PTX for {}, only machine code; the virtual GPU runs PTX\n  help: {}",
                       library, target,
                       library.find("cublas") != library.npos || library.find("curand") != library.npos
                           ? "imbrex run --with-blas answers the matrix products of cuBLAS and cuBLASLt and "
                             "the random numbers of "
                             "cuRAND on the host"
                           : "where the library is your own, build it again with -gencode arch=compute_" +
                                 arch + ",code=compute_" + arch +
                                 "; what a closed library computes has to be computed in another way"));
  if (!ptx.empty())
    refuse(CUDA_ERROR_NO_BINARY_FOR_GPU,
           fmt::format("its kernels are there as PTX for {}, which the virtual GPU ({}) does not run\n"
                       "  help: choose another GPU by --gpu or IMBREX_GPU, or compile with -gencode "
                       "arch=compute_{},code=compute_{}",
                       fmt::join(ptx, ", "), target, arch, arch));
  if (has_cublas_inside())
    refuse(CUDA_ERROR_NO_BINARY_FOR_GPU,
           fmt::format(
               "kernels are there as machine code only, and cuBLAS is linked into the program, whose kernels "
               "are so; "
               "the virtual GPU runs PTX\n"
               "  help: link it as a shared library (-lcublas -lcublasLt in place of -lcublas_static "
               "-lcublasLt_static), and imbrex run --with-blas answers its matrix products on the host; the "
               "program's own kernels need PTX, by -gencode arch=compute_{},code=compute_{}",
               arch, arch));
  refuse(CUDA_ERROR_NO_BINARY_FOR_GPU,
         fmt::format("its kernels are there as machine code{}{} only; the virtual GPU runs PTX\n"
                     "  help: build the program again with NVCC_APPEND_FLAGS=\"-gencode "
                     "arch=compute_{},code=compute_{}\" in the environment, which adds PTX",
                     machine_code.empty() ? "" : " for ", fmt::join(machine_code, ", "), arch, arch));
}

/// PTX as text, perhaps of several modules one behind the other: what our linkers' stand-ins leave.
std::string one_module(std::string text) {
  constexpr std::string_view kVersion = "\n.version";
  std::vector<NamedPtx> modules;
  for (size_t at = 0; at < text.size();) {
    const size_t own = text.find(".version", at);
    const size_t end = own == std::string::npos ? own : text.find(kVersion, own + 1);
    const size_t next = end == std::string::npos ? text.size() : end + 1;
    modules.push_back({fmt::format("module {}", modules.size() + 1), text.substr(at, next - at)});
    at = next;
  }
  return modules.size() < 2 ? text : link_ptx(std::move(modules));
}

std::string choose(const std::vector<FatEntry>& entries, std::string_view target,
                   const void* image = nullptr) {
  const FatEntry* best = best_ptx(entries, target);
  if (best == nullptr) refuse_without_ptx(entries, target, image);
  return best->text;
}

std::vector<FatEntry> entries_at(const void* image) {
  const uint64_t bytes = fat_binary_bytes(copy_readable(image, sizeof(FatBinaryHeader)));
  if (bytes > kMostImageBytes)
    refuse(CUDA_ERROR_INVALID_IMAGE, fmt::format("corrupt fat binary: its header speaks of {} bytes", bytes));
  return read_fat_binary(copy_readable(image, bytes));
}

/// The part of libcudadevrt, of which the virtual GPU has what it has itself. Its PTX is for the newest GPUs only.
bool is_device_runtime(const void* part) {
  uint32_t magic = 0;
  const std::vector<std::byte> start = copy_readable(part, sizeof magic);
  if (start.size() < sizeof magic) return false;
  std::memcpy(&magic, start.data(), sizeof magic);
  if (magic != kFatBinaryMagic) return false;
  const std::vector<FatEntry> entries = entries_at(part);
  return std::ranges::any_of(entries, [](const FatEntry& entry) {
    return entry.kind == FatEntryKind::kPtx &&
           entry.text.find("_cuda_device_runtime_cu_") != std::string::npos;
  });
}

}  // namespace

std::string link_ptx(std::vector<NamedPtx> modules) {
  if (modules.size() == 1) return std::move(modules.front().text);
  std::vector<ptx::LinkInput> inputs;
  for (const NamedPtx& one : modules) inputs.push_back({one.name, ptx::read(one.text, one.name)});
  return ptx::write(ptx::link(std::move(inputs)));
}

const FatEntry* best_ptx(const std::vector<FatEntry>& entries, std::string_view target) {
  const auto gpu = ptx::Target::parse(target);
  const FatEntry* best = nullptr;
  int best_rank = -1;
  for (const FatEntry& entry : entries) {
    if (entry.kind != FatEntryKind::kPtx) continue;
    const std::string wanted = target_of(entry.text);
    const auto needs = ptx::Target::parse(wanted);
    // A text without a target that we understand is left to the reader, whose message names the line.
    int rank = 0;
    if (needs.has_value() && gpu.has_value()) {
      if (!runs_code_of(target, wanted)) continue;
      rank = 3 * needs->sm + (needs->variant == 'a' ? 2 : needs->variant == 'f' ? 1 : 0);
    }
    if (rank > best_rank) {
      best_rank = rank;
      best = &entry;
    }
  }
  return best;
}

std::string ptx_of_bytes(std::string_view bytes, std::string_view target) {
  const auto* data = reinterpret_cast<const std::byte*>(bytes.data());
  if (bytes.starts_with(kElfMagic)) refuse_without_ptx({}, target);
  uint32_t magic = 0;
  if (bytes.size() >= sizeof magic) std::memcpy(&magic, bytes.data(), sizeof magic);
  if (magic != kFatBinaryMagic) return one_module(std::string(bytes.substr(0, bytes.find('\0'))));
  std::vector<FatEntry> entries;
  for (std::span<const std::byte> rest(data, bytes.size());;) {
    const uint64_t own = fat_binary_bytes(rest);
    if (own == 0) break;
    const std::vector<FatEntry> more = read_fat_binary(rest);
    entries.insert(entries.end(), more.begin(), more.end());
    rest = rest.subspan(own);
  }
  return choose(entries, target);
}

std::string ptx_of_image(const void* image, std::string_view target) {
  if (image == nullptr) refuse(CUDA_ERROR_INVALID_VALUE, "the image is null");
  uint32_t magic = 0;
  const std::vector<std::byte> start = copy_readable(image, sizeof magic);
  if (start.size() < sizeof magic)
    refuse(CUDA_ERROR_INVALID_IMAGE, "the image lies at an address without memory");
  std::memcpy(&magic, start.data(), sizeof magic);
  if (magic == kFatBinaryWrapperMagic) {
    Wrapper wrapper;
    std::memcpy(&wrapper, image, sizeof wrapper);
    if (wrapper.version != kLinkedWrapper || wrapper.more == nullptr)
      return ptx_of_image(wrapper.binary, target);
    // Of a program compiled in parts (-rdc=true): nvcc's linker leaves machine code, and beside it the parts.
    std::vector<NamedPtx> parts;
    for (const void* const* part = static_cast<const void* const*>(wrapper.more); *part != nullptr; ++part)
      if (!is_device_runtime(*part))
        parts.push_back({fmt::format("part {}", parts.size() + 1), ptx_of_image(*part, target)});
    return parts.empty() ? ptx_of_image(wrapper.binary, target) : link_ptx(std::move(parts));
  }
  if (std::memcmp(&magic, kElfMagic.data(), kElfMagic.size()) == 0) refuse_without_ptx({}, target, image);
  if (magic == kFatBinaryMagic) {
    return choose(entries_at(image), target, image);
  }
  return one_module(static_cast<const char*>(image));
}

}  // namespace imbrex::cuda
