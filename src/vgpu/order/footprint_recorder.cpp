// SPDX-License-Identifier: Apache-2.0
#include "vgpu/order/footprint_recorder.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <iterator>

#include "vgpu/memory/memory.h"

namespace imbrex::vgpu {

// Zero bytes are null pointers.
FootprintRecorder::FootprintRecorder(uint64_t bytes)
    : base_(kGlobalBase),
      reserved_bytes_((bytes / kPageBytes + 1) * sizeof(std::atomic<Page*>)),
      pages_(static_cast<std::atomic<Page*>*>(
          reserve(reserved_bytes_, "for what launches touch", "lower Options::memory_bytes"))) {}

FootprintRecorder::~FootprintRecorder() { munmap(pages_, reserved_bytes_); }

FootprintRecorder::Page& FootprintRecorder::page(uint64_t number) {
  std::atomic<Page*>& slot = pages_[number];
  if (Page* known = slot.load(std::memory_order_acquire)) return *known;
  const std::lock_guard lock(mutex_);
  if (Page* known = slot.load(std::memory_order_relaxed)) return *known;
  if (spare_.empty()) spare_.push_back(std::make_unique<Page>());
  touched_.push_back(std::move(spare_.back()));
  spare_.pop_back();
  Page& taken = *touched_.back();
  taken.number = number;
  slot.store(&taken, std::memory_order_release);
  return taken;
}

void FootprintRecorder::note(uint64_t offset, uint64_t bytes, Kind kind) {
  for (const uint64_t end = offset + bytes; offset < end;) {
    const uint64_t page_end = std::min(end, (offset / kPageBytes + 1) * kPageBytes);
    std::atomic<uint64_t>* const words = page(offset / kPageBytes).words[kind];
    while (offset < page_end) {
      const uint64_t span = std::min(64 - offset % 64, page_end - offset);
      std::atomic<uint64_t>& word = words[offset % kPageBytes / 64];
      if (span == 64)
        word.store(~uint64_t{0}, std::memory_order_relaxed);  // whatever others have set there
      else
        word.fetch_or(mask_of(offset % 64, span), std::memory_order_relaxed);
      offset += span;
    }
  }
}

namespace {

void append(std::vector<ByteRange>& list, uint64_t begin, uint64_t end) {
  if (!list.empty() && list.back().end == begin)
    list.back().end = end;
  else
    list.push_back({begin, end});
}

}  // namespace

Footprint FootprintRecorder::take() {
  std::ranges::sort(touched_, {}, [](const std::unique_ptr<Page>& page) { return page->number; });
  Footprint footprint;
  std::vector<ByteRange>* const lists[] = {&footprint.read, &footprint.written, &footprint.read_strongly,
                                           &footprint.written_strongly};
  for (const std::unique_ptr<Page>& page : touched_) {
    for (int kind = 0; kind < kKinds; ++kind)
      for (uint64_t i = 0; i < kPageBytes / 64; ++i) {
        const uint64_t first = base_ + page->number * kPageBytes + i * 64;
        uint64_t word = page->words[kind][i].load(std::memory_order_relaxed);
        if (word == 0) continue;
        page->words[kind][i].store(0, std::memory_order_relaxed);
        for (int at = 0; word != 0;) {
          const int skipped = std::countr_zero(word);
          word >>= skipped;
          const int run = std::countr_one(word);
          append(*lists[kind], first + static_cast<uint64_t>(at + skipped),
                 first + static_cast<uint64_t>(at + skipped + run));
          at += skipped + run;
          word = run == 64 ? 0 : word >> run;
        }
      }
    pages_[page->number].store(nullptr, std::memory_order_relaxed);
  }
  std::ranges::move(touched_, std::back_inserter(spare_));
  touched_.clear();
  if (spare_.size() > kMostSpare) spare_.resize(kMostSpare);
  return footprint;
}

}  // namespace imbrex::vgpu
