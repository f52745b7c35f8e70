// SPDX-License-Identifier: Apache-2.0
// Reading and writing bytes that another host thread may be writing at the same moment. A kernel with a race
// on global memory does that to us; it is to be found, not to become a race of our own. So bytes of global
// memory move by relaxed atomic words, as large as their alignment allows.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace imbrex::vgpu {

/// An integer at an address aligned to its size.
template <class T>
T read_word(const std::byte* from) {
  return __atomic_load_n(reinterpret_cast<const T*>(from), __ATOMIC_RELAXED);
}
template <class T>
void write_word(std::byte* to, T value) {
  __atomic_store_n(reinterpret_cast<T*>(to), value, __ATOMIC_RELAXED);
}

/// Calls move(i, T{}) for consecutive words [i, i + sizeof(T)) of `count` bytes at `address`, T being the
/// widest unsigned integer for which word i is aligned.
template <class Move>
void for_each_word(const std::byte* address, size_t count, Move&& move) {
  size_t i = 0;
  const auto step = [&]<class T>(T word) {
    move(i, word);
    i += sizeof(T);
  };
  const auto is_aligned = [&](size_t to) {
    return (reinterpret_cast<uintptr_t>(address + i) & (to - 1)) == 0;
  };
  while (i < count) {
    if (count - i >= 8 && is_aligned(8)) {
      const size_t words_end = i + (count - i) / 8 * 8;
      while (i < words_end) step(uint64_t{});
    } else if (count - i >= 4 && is_aligned(4)) {
      step(uint32_t{});
    } else if (count - i >= 2 && is_aligned(2)) {
      step(uint16_t{});
    } else {
      step(uint8_t{});
    }
  }
}

inline void read_bytes(void* to, const std::byte* from, size_t count) {
  for_each_word(from, count, [&]<class T>(size_t i, T) {
    const T word = read_word<T>(from + i);
    std::memcpy(static_cast<std::byte*>(to) + i, &word, sizeof word);
  });
}
/// Whether `count` bytes at `host` are those of `bytes`.
inline bool holds_bytes(const std::byte* host, const void* bytes, size_t count) {
  bool same = true;
  for_each_word(host, count, [&]<class T>(size_t i, T word) {
    std::memcpy(&word, static_cast<const std::byte*>(bytes) + i, sizeof word);
    same = same && read_word<T>(host + i) == word;
  });
  return same;
}
inline void write_bytes(std::byte* to, const void* from, size_t count) {
  for_each_word(to, count, [&]<class T>(size_t i, T word) {
    std::memcpy(&word, static_cast<const std::byte*>(from) + i, sizeof word);
    write_word(to + i, word);
  });
}

}  // namespace imbrex::vgpu
