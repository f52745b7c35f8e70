// SPDX-License-Identifier: Apache-2.0
// The answer that CUDA runtimes compare with their own before they talk to a driver: a keyed MD2 hash (RFC 1319 and
// RFC 2104) of the process, the tables that the driver exports and the devices.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace imbrex::cuda {

using Digest = std::array<std::byte, 16>;

/// MD2 of bytes.
Digest md2(std::span<const std::byte> bytes);
/// HMAC with MD2.
Digest hmac_md2(std::span<const std::byte> key, std::span<const std::byte> message);

/// What goes into the hash, in this layout, before 28 bytes for each device.
struct IntegrityFacts {
  uint32_t driver_version, runtime_version;
  uint32_t process, thread;
  const void* runtime_table;
  const void* integrity_table;
  const void* function;
  uint64_t unix_seconds;
};
struct IntegrityDevice {
  unsigned char uuid[16];
  int32_t pci_domain, pci_bus, pci_device;
};

Digest integrity_answer(const IntegrityFacts& facts, std::span<const IntegrityDevice> devices);

}  // namespace imbrex::cuda
