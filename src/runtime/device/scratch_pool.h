// SPDX-License-Identifier: Apache-2.0
// Scratch memory by stream: what one user on a stream gives back, the next one on the same stream may have at once,
// because the stream carries out what the first issued before what the second issues. Streams share nothing, so that
// no event is needed and nothing is waited for.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

namespace imbrex::runtime {

class DeviceBackend;
struct CUstream_st;

class ScratchPool {
 public:
  struct Block {
    uint64_t address = 0;
    int64_t bytes = 0;  ///< of the block, which may be more than was asked for
  };

  /// The smallest block of the stream that is free and large enough, or a new one. `stream` is the stream's number,
  /// which no later stream has.
  Block take(DeviceBackend& device, uint64_t stream, int64_t bytes);
  void give_back(uint64_t stream, Block block);
  /// The stream is gone: frees its blocks.
  void forget(DeviceBackend& device, uint64_t stream) noexcept;

 private:
  std::mutex mutex_;
  std::map<uint64_t, std::vector<Block>> free_;  // by stream
};

}  // namespace imbrex::runtime
