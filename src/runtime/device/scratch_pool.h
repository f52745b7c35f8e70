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
    bool is_new = true;
  };

  /// The smallest block of the stream that is free and large enough, or a new one. `stream` is the stream's number,
  /// which no later stream has. Blocks that are left zero are kept apart.
  Block take(DeviceBackend& device, uint64_t stream, bool is_left_zero, int64_t bytes);
  void give_back(uint64_t stream, bool is_left_zero, Block block);
  /// The stream is gone: frees its blocks.
  void forget(DeviceBackend& device, uint64_t stream) noexcept;

 private:
  std::mutex mutex_;
  struct OfStream {
    std::vector<Block> any, left_zero;
  };
  std::map<uint64_t, OfStream> free_;  // by stream
};

}  // namespace imbrex::runtime
