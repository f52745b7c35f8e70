// SPDX-License-Identifier: Apache-2.0
#include "cuda_host/host/memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "cuda_host/abi/api_error.h"
#include "cuda_host/host/host.h"
#include "cuda_host/host/host_threads.h"
#include "imbrex/core/error.h"
#include "vgpu/memory/memory.h"

namespace imbrex::cuda {
namespace {

const char* name(MemoryKind kind) {
  switch (kind) {
    case MemoryKind::kDevice:
      return "device memory";
    case MemoryKind::kManaged:
      return "managed memory";
    case MemoryKind::kPinned:
      return "pinned host memory";
  }
  return "";
}

const char* releasing(MemoryKind kind) { return kind == MemoryKind::kPinned ? "cudaFreeHost" : "cudaFree"; }

}  // namespace

bool DeviceMemory::is_of_device(uint64_t address) {
  constexpr uint64_t kMostBytes = uint64_t{1} << 40;
  return address >= vgpu::kGlobalBase && address - vgpu::kGlobalBase < kMostBytes;
}

Block& DeviceMemory::allocate(int64_t bytes, MemoryKind kind, int device, unsigned flags) {
  if (bytes <= 0)
    refuse(CUDA_ERROR_INVALID_VALUE, fmt::format("{} bytes of {} are asked for", bytes, name(kind)));
  take(bytes, name(kind));
  Block block;
  try {
    block.address = kind == MemoryKind::kDevice ? gpu_.allocate(bytes) : gpu_.allocate_host_visible(bytes);
  } catch (const LaunchError& error) {
    give_back(bytes);
    refuse(CUDA_ERROR_OUT_OF_MEMORY, error.diagnostics().front().message);
  }
  block.bytes = bytes;
  block.kind = kind;
  block.device = device;
  block.flags = flags;
  block.id = ++last_id_;
  freed_.erase(block.address);
  return blocks_[block.address] = block;
}

namespace {

/// A finding of the program: no GPU goes on as if nothing had been.
void tell_double_free(const std::string& what) {
  vgpu::Finding finding;
  finding.kind = vgpu::FindingKind::kUseAfterFree;
  finding.message = what;
  if (const std::string place = place_in_program(); !place.empty()) finding.facts.push_back("in " + place);
  finding.hint =
      "free it once: let one owner do it, or set the pointer to null behind it (freeing null does nothing)";
  Host::get().log.add("the host program", finding);
}

std::string larger_gpu_than(int64_t bytes) {
  const std::vector<GpuModel>& models = gpu_models();
  const auto most = std::ranges::max_element(models, {}, &GpuModel::hbm_bytes);
  const std::string keep = "  help: free what is not used any more";
  return most->hbm_bytes <= bytes
             ? keep
             : fmt::format("{}, or let the GPU be a larger one: imbrex run --gpu {} has {:.0f} GB", keep,
                           most->name, static_cast<double>(most->hbm_bytes) / 1e9);
}

}  // namespace

void DeviceMemory::free(uint64_t address, MemoryKind kind) {
  const auto at = blocks_.find(address);
  if (at == blocks_.end()) {
    const char* call = releasing(kind);
    if (freed_.contains(address)) {
      const std::string what =
          fmt::format("0x{:x} was freed before ({} bytes): a double free", address, freed_[address]);
      tell_double_free(what);
      refuse(CUDA_ERROR_INVALID_VALUE, what);
    }
    if (const Block* inside = find(address); inside != nullptr)
      refuse(CUDA_ERROR_INVALID_VALUE,
             fmt::format("0x{:x} is byte {} of an allocation of {}, whose start {} wants\n"
                         "  help: pass the pointer that the allocation gave",
                         address, address - inside->address, inside->bytes, call));
    refuse(CUDA_ERROR_INVALID_VALUE,
           fmt::format("0x{:x} was not allocated here\n"
                       "  help: memory of malloc and new is released by free and delete",
                       address));
  }
  const Block block = at->second;
  if (block.is_adopted)
    refuse(CUDA_ERROR_INVALID_VALUE,
           fmt::format("0x{:x} is a variable, or mapped memory, which {} does not release", address,
                       releasing(kind)));
  if ((block.kind == MemoryKind::kPinned) != (kind == MemoryKind::kPinned))
    refuse(CUDA_ERROR_INVALID_VALUE, fmt::format("0x{:x} is {}, which is released by {}", address,
                                                 name(block.kind), releasing(block.kind)));
  if (Pool* pool = Host::get().pools.find(block.pool); pool != nullptr) pool->give_back(block.bytes);
  gpu_.free(address);
  used_bytes_ -= block.bytes;
  freed_[address] = block.bytes;
  blocks_.erase(at);
}

const Block* DeviceMemory::find(uint64_t address) const {
  auto after = blocks_.upper_bound(address);
  if (after == blocks_.begin()) return nullptr;
  const Block& block = std::prev(after)->second;
  return address - block.address < static_cast<uint64_t>(block.bytes) ? &block : nullptr;
}
Block* DeviceMemory::find(uint64_t address) {
  return const_cast<Block*>(static_cast<const DeviceMemory*>(this)->find(address));
}

bool DeviceMemory::would_fault(uint64_t address) const {
  constexpr uint64_t kPageBytes = 2 << 20;
  const uint64_t begin = address / kPageBytes * kPageBytes;
  auto after = blocks_.lower_bound(begin + kPageBytes);
  if (after == blocks_.begin()) return true;
  const Block& last = std::prev(after)->second;  // that begins in the page or before it
  return last.address + static_cast<uint64_t>(last.bytes) <= begin;
}

void DeviceMemory::adopt(uint64_t address, int64_t bytes, int device, MemoryKind kind) {
  blocks_[address] = {address, bytes, kind, device, ++last_id_, 0, nullptr, true};
}
void DeviceMemory::disown(uint64_t address) { blocks_.erase(address); }

void DeviceMemory::copy(uint64_t to, uint64_t from, int64_t bytes) {
  if (bytes == 0) return;
  if (to == 0 || from == 0)
    refuse(CUDA_ERROR_INVALID_VALUE, fmt::format("a copy {} address 0", to == 0 ? "to" : "from"));
  const bool to_device = is_of_device(to), from_device = is_of_device(from);
  if (to_device && from_device)
    gpu_.copy_on_device(to, from, bytes);
  else if (to_device)
    gpu_.copy_to_device(to, reinterpret_cast<const void*>(from), bytes);
  else if (from_device)
    gpu_.copy_from_device(reinterpret_cast<void*>(to), from, bytes);
  else
    std::memmove(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from),
                 static_cast<size_t>(bytes));
}

void DeviceMemory::copy(const PitchedSide& to, const PitchedSide& from, int64_t width, int64_t height,
                        int64_t depth) {
  for (int64_t z = 0; z < depth; ++z)
    for (int64_t y = 0; y < height; ++y)
      copy(to.address + static_cast<uint64_t>(z * to.slice + y * to.pitch),
           from.address + static_cast<uint64_t>(z * from.slice + y * from.pitch), width);
}

void DeviceMemory::fill(uint64_t to, int64_t pitch, uint32_t value, int element_bytes, int64_t width,
                        int64_t height) {
  for (int64_t y = 0; y < height; ++y) {
    const uint64_t row = to + static_cast<uint64_t>(y * pitch);
    if (!is_of_device(row)) {
      if (width == 0) return;
      if (find_registered(reinterpret_cast<const void*>(row)) == nullptr)
        refuse(CUDA_ERROR_INVALID_VALUE,
               row == 0 ? "a fill of address 0"
                        : fmt::format("a fill of 0x{:x}, which is memory of the host that was not registered",
                                      row));
      char* at = reinterpret_cast<char*>(row);
      for (int64_t i = 0; i < width; ++i)
        std::memcpy(at + i * element_bytes, &value, static_cast<size_t>(element_bytes));
    } else if (element_bytes == 1) {
      gpu_.fill(row, static_cast<uint8_t>(value), width);
    } else if (element_bytes == 2) {
      gpu_.fill16(row, static_cast<uint16_t>(value), width);
    } else {
      gpu_.fill32(row, value, width);
    }
  }
}

void DeviceMemory::register_host(const void* start, int64_t bytes, unsigned flags) {
  const char* at = static_cast<const char*>(start);
  if (at == nullptr || bytes <= 0)
    refuse(CUDA_ERROR_INVALID_VALUE, fmt::format("{} bytes at {} are to be registered", bytes, start));
  if (find_registered(at) != nullptr || find_registered(at + bytes - 1) != nullptr)
    refuse(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED,
           fmt::format("some of the {} bytes at {} are registered already", bytes, start));
  registered_[at] = {bytes, flags};
}

void DeviceMemory::unregister_host(const void* start) {
  const auto at = registered_.find(static_cast<const char*>(start));
  if (at == registered_.end())
    refuse(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, fmt::format("{} is no registered memory's start", start));
  if (const uint64_t address = at->second.device_address; address != 0) {
    disown(address);
    gpu_.free(address);
  }
  registered_.erase(at);
}

uint64_t DeviceMemory::device_address_of_registered(const void* at) {
  auto& [start, registered] = *std::prev(registered_.upper_bound(static_cast<const char*>(at)));
  if (registered.device_address == 0) {
    registered.device_address = gpu_.allocate(registered.bytes);
    registered.pushed.resize(static_cast<size_t>(registered.bytes));
    adopt(registered.device_address, registered.bytes, 0);
  }
  return registered.device_address + static_cast<uint64_t>(static_cast<const char*>(at) - start);
}

void DeviceMemory::push_registered() {
  for (auto& [start, registered] : registered_) {
    if (registered.device_address == 0) continue;
    std::memcpy(registered.pushed.data(), start, registered.pushed.size());
    gpu_.copy_to_device(registered.device_address, start, registered.bytes);
  }
}

// Bytes that the work left as they were may have been changed by another thread of the host meanwhile: they stay.
void DeviceMemory::pull_registered() {
  for (auto& [start, registered] : registered_) {
    if (registered.device_address == 0) continue;
    std::vector<std::byte> now(registered.pushed.size());
    gpu_.copy_from_device(now.data(), registered.device_address, registered.bytes);
    if (now == registered.pushed) continue;
    auto* host = reinterpret_cast<std::byte*>(const_cast<char*>(start));
    for (size_t i = 0; i < now.size(); ++i)
      if (now[i] != registered.pushed[i]) host[i] = now[i];
  }
}

void DeviceMemory::take(int64_t bytes, const char* what) {
  if (bytes > total_bytes() - used_bytes_)
    refuse(CUDA_ERROR_OUT_OF_MEMORY,
           fmt::format("{} bytes of {} are asked for, {} of {} are in use\n{}", bytes, what, used_bytes_,
                       total_bytes(), larger_gpu_than(total_bytes())));
  used_bytes_ += bytes;
}

const Registered* DeviceMemory::find_registered(const void* at) const {
  auto after = registered_.upper_bound(static_cast<const char*>(at));
  if (after == registered_.begin()) return nullptr;
  const auto& [start, registered] = *std::prev(after);
  return static_cast<const char*>(at) - start < registered.bytes ? &registered : nullptr;
}

}  // namespace imbrex::cuda
