// SPDX-License-Identifier: Apache-2.0
#include "vgpu/memory/written_map.h"

#include <sys/mman.h>

#include <algorithm>
#include <vector>

#include "vgpu/memory/memory.h"

namespace imbrex::vgpu {

namespace {

constexpr uint64_t kAllBits = ~uint64_t{0};
/// Bits of at least so many bytes are given back to the host rather than cleared.
constexpr uint64_t kReturnedBytes = 1 << 20;

/// Bits [from, to) of a word.
constexpr uint64_t bits_between(uint64_t from, uint64_t to) {
  const uint64_t below_end = to == 64 ? kAllBits : (uint64_t{1} << to) - 1;
  return below_end & (kAllBits << from);
}

/// Calls each(word, bits) for the words of bytes [at, at + bytes), until it returns false.
template <class Each>
bool each_word(uint64_t at, uint64_t bytes, Each&& each) {
  for (const uint64_t end = at + bytes; at < end;) {
    const uint64_t stop = std::min(end, (at / 64 + 1) * 64);
    if (!each(at / 64, bits_between(at % 64, at % 64 + (stop - at)))) return false;
    at = stop;
  }
  return true;
}

/// Of bytes [at, end): which are not marked in a word, of any of its words.
uint64_t not_marked(const uint64_t* bits, uint64_t at, uint64_t end) {
  const auto missing = [&](uint64_t word) { return ~__atomic_load_n(&bits[word], __ATOMIC_RELAXED); };
  const uint64_t first = at / 64, last = (end - 1) / 64;
  const uint64_t head = kAllBits << at % 64, tail = kAllBits >> (63 - (end - 1) % 64);
  if (first == last) return missing(first) & head & tail;
  uint64_t some = (missing(first) & head) | (missing(last) & tail);
  for (uint64_t word = first + 1; word < last; ++word) some |= missing(word);
  return some;
}

}  // namespace

WrittenMap::WrittenMap(uint64_t bytes) : pages_((bytes + kPageBytes - 1) / kPageBytes) {
  const char* const purpose = "for what has been written of device memory";
  const char* const help = "lower Options::memory_bytes";
  whole_ = static_cast<uint8_t*>(reserve(pages_, purpose, help));
  bits_ = static_cast<uint64_t*>(reserve(pages_ * kPageBytes / 8, purpose, help));
}

WrittenMap::~WrittenMap() {
  munmap(whole_, pages_);
  munmap(bits_, pages_ * kPageBytes / 8);
}

void WrittenMap::mark_apart(uint64_t at, uint64_t bytes, uint16_t pattern) {
  const uint64_t in_word = uint64_t{pattern} * 0x0001'0001'0001'0001;
  for (const uint64_t end = at + bytes; at < end;) {
    const uint64_t page = at / kPageBytes, stop = std::min(end, (page + 1) * kPageBytes);
    if (pattern == kAllOf16 && stop - at == kPageBytes) {
      __atomic_store_n(&whole_[page], uint8_t{1}, __ATOMIC_RELAXED);
    } else if (!is_whole(page) && (not_marked(bits_, at, stop) & in_word) != 0) {
      each_word(at, stop - at, [&](uint64_t index, uint64_t range) {
        const uint64_t wanted = range & in_word;
        if ((word(index) & wanted) != wanted) __atomic_fetch_or(&bits_[index], wanted, __ATOMIC_RELAXED);
        return true;
      });
    }
    at = stop;
  }
}

bool WrittenMap::all_apart(uint64_t at, uint64_t bytes, uint16_t pattern) const {
  const uint64_t in_word = uint64_t{pattern} * 0x0001'0001'0001'0001;
  for (const uint64_t end = at + bytes; at < end;) {
    const uint64_t page = at / kPageBytes, stop = std::min(end, (page + 1) * kPageBytes);
    if (!is_whole(page) && (not_marked(bits_, at, stop) & in_word) != 0) return false;
    at = stop;
  }
  return true;
}

bool WrittenMap::any(uint64_t at, uint64_t bytes) const {
  for (const uint64_t end = at + bytes; at < end;) {
    const uint64_t page = at / kPageBytes, stop = std::min(end, (page + 1) * kPageBytes);
    if (is_whole(page) ||
        !each_word(at, stop - at, [&](uint64_t index, uint64_t range) { return (word(index) & range) == 0; }))
      return true;
    at = stop;
  }
  return false;
}

void WrittenMap::forget(uint64_t at, uint64_t bytes) {
  if (bytes == 0) return;
  const uint64_t end = at + bytes;
  const auto clear = [&](uint64_t from, uint64_t to) {
    each_word(from, to - from, [&](uint64_t index, uint64_t range) {
      if ((word(index) & range) != 0) __atomic_fetch_and(&bits_[index], ~range, __ATOMIC_RELAXED);
      return true;
    });
  };
  // Of a page that is whole a part stays: it is told by its bits from now on.
  const auto clear_part = [&](uint64_t from, uint64_t to) {
    if (from >= to) return;
    const uint64_t page = from / kPageBytes;
    if (is_whole(page)) {
      std::fill_n(bits_ + page * kWordsOfPage, kWordsOfPage, kAllBits);
      __atomic_store_n(&whole_[page], uint8_t{0}, __ATOMIC_RELAXED);
    }
    clear(from, to);
  };
  const uint64_t first = (at + kPageBytes - 1) / kPageBytes, last = end / kPageBytes;  // whole pages
  if (first > last) return clear_part(at, end);
  clear_part(at, first * kPageBytes);
  clear_part(last * kPageBytes, end);
  if (first == last) return;
  std::fill(whole_ + first, whole_ + last, uint8_t{0});
  // The host takes pages back, which are zeros when they are touched again.
  constexpr uint64_t kHostPage = 4096 * 8;  // bytes whose bits one page of the host holds
  const uint64_t from = first * kPageBytes, to = last * kPageBytes;
  const uint64_t begin = (from + kHostPage - 1) / kHostPage * kHostPage, finish = to / kHostPage * kHostPage;
  if (to - from < kReturnedBytes * 8 || begin >= finish) return clear(from, to);
  clear(from, begin);
  madvise(reinterpret_cast<std::byte*>(bits_) + begin / 8, (finish - begin) / 8, MADV_DONTNEED);
  clear(finish, to);
}

void WrittenMap::copy(uint64_t to, uint64_t from, uint64_t bytes) {
  if (bytes == 0 || all(from, bytes)) return bytes == 0 ? void() : mark(to, bytes);
  std::vector<bool> written(bytes);
  for (uint64_t i = 0; i < bytes; ++i) written[i] = all(from + i, 1);
  forget(to, bytes);
  for (uint64_t i = 0; i < bytes;) {
    uint64_t end = i;
    while (end < bytes && written[end]) ++end;
    if (end > i) mark(to + i, end - i);
    i = end + 1;
  }
}

}  // namespace imbrex::vgpu
