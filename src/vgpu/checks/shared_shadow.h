// SPDX-License-Identifier: Apache-2.0
// The shadow of shared memory, a tile of 1024 bytes at a time: a list of accesses, each with those of the 64 cells that it touches. That
// holds what copies, products and whole warps do. A tile that has too much to remember, or of which a judge has
// something to say, is split into its cells, each with its own four accesses, and is united when a write that all is
// ordered before covers it.
//
// In a tile an access's `bytes` are those of every one of its cells, and its lane is that of the tile's first byte. A
// split tile's own list holds nothing but a mark.
#pragma once

#include <algorithm>
#include <array>
#include <cstring>
#include <iterator>
#include <vector>

#include "vgpu/checks/shadow.h"
#include "vgpu/checks/tile_matches.h"
#include "vgpu/memory/recycled_block.h"

namespace imbrex::vgpu {

inline constexpr uint32_t kTileBytes = 1024;
inline constexpr uint32_t kCellsInTile = kTileBytes / ShadowCell::kBytes;
/// Of the cells of a tile, a bit each.
using Cells = uint64_t;
inline constexpr Cells kAllCells = ~Cells{0};

/// Accesses from the oldest on. Of each what matters for nearly all others is whether it touches the same cells and who it
/// was, so that these lie side by side, see matches(); but those of few accesses near each other.
struct alignas(64) ShadowTile {
  struct Slot {
    Access access;
    Cells cells = 0;
  };
  /// More of them are fewer tiles that are split. Four warps that read all of it by ldmatrix have 32.
  static constexpr size_t kMost = kMatchedAtOnce * 11;
  /// From so many on nothing is added that touches one cell only: lanes that touch their own each in no order come in numbers.
  static constexpr size_t kMostOfOneCell = 16;
  static constexpr uint32_t kNotSplit = ~uint32_t{0};

  uint32_t count;
  uint32_t group;  // of a split tile: where its cells are
  alignas(32) TilePart parts[kMost / kMatchedAtOnce];

  Cells& cells(size_t i) { return part(i).cells[i % kMatchedAtOnce]; }
  Cells cells(size_t i) const { return part(i).cells[i % kMatchedAtOnce]; }
  uint64_t who(size_t i) const { return part(i).who[i % kMatchedAtOnce]; }
  Access access(size_t i) const { return Access::of_bits(who(i), part(i).what[i % kMatchedAtOnce]); }
  Slot slot(size_t i) const { return {access(i), cells(i)}; }
  void set(size_t i, const Slot& slot) {
    cells(i) = slot.cells;
    part(i).who[i % kMatchedAtOnce] = slot.access.who_bits();
    part(i).what[i % kMatchedAtOnce] = slot.access.what_bits();
  }
  void clear() {
    count = 0;
    group = kNotSplit;
  }
  void insert(size_t at, const Slot& now) {
    for (size_t i = count; i > at; --i) set(i, slot(i - 1));
    set(at, now);
    ++count;
  }
  void erase(size_t at) {
    for (size_t i = at + 1; i < count; ++i) set(i - 1, slot(i));
    --count;
  }
  bool is_split() const { return group != kNotSplit; }
  void mark_split(uint32_t where) {
    count = 0;
    group = where;
  }
  /// Which accesses touch some of the cells, and which are of the same agent and clock, a bit each.
  TileMatches matches(const Slot& now) const {
    return match_tile(parts, count, now.cells, now.access.who_bits());
  }

 private:
  TilePart& part(size_t i) { return parts[i / kMatchedAtOnce]; }
  const TilePart& part(size_t i) const { return parts[i / kMatchedAtOnce]; }
};
static_assert(ShadowTile::kMost <= 64);
static_assert(sizeof(ShadowTile) % 128 == 64);  // the first lines of tiles lie in different sets of a cache

/// As if record() had been called for each cell: it takes the last free place first.
inline void split_tile(const ShadowTile& tile, ShadowCell* cells) {
  constexpr size_t kPlaces = std::size(ShadowCell().slots);
  for (uint32_t c = 0; c < kCellsInTile; ++c) cells[c] = {};
  std::array<uint8_t, kCellsInTile> place;
  place.fill(kPlaces);
  for (size_t i = 0; i < tile.count; ++i)
    for (Cells left = tile.cells(i); left != 0; left &= left - 1) {
      const int c = std::countr_zero(left);
      const Access access = in_cell(tile.access(i), static_cast<uint32_t>(c));
      Access* const end = std::end(cells[c].slots);
      Access* const like = std::find_if(cells[c].slots + place[static_cast<size_t>(c)], end,
                                        [&](Access slot) { return slot.is_like(access); });
      if (like != end)
        like->add_bytes(access.bytes());
      else
        cells[c].slots[--place[static_cast<size_t>(c)]] = access;
    }
}
/// How often each cell of a tile is one of some masks, up to four times.
class CellCounts {
 public:
  void add(Cells cells) {
    const Cells twos = ones_ & cells, fours = twos_ & twos;
    ones_ ^= cells;
    twos_ ^= twos;
    fours_ |= fours;
  }
  Cells four_times() const { return fours_; }

 private:
  Cells ones_ = 0, twos_ = 0, fours_ = 0;
};

/// Are there four bits at least?
constexpr bool has_four(uint64_t bits) {
  for (int i = 0; i < 3; ++i) bits &= bits - 1;  // nothing stays nothing
  return bits != 0;
}

/// Is `earlier` ordered before `now` in the bytes of `cells` that both touch?
enum class Ordered : uint8_t { kNo, kYes, kHere };  // kHere: in some cells only
template <class Judge>
Ordered order_of(Access earlier, Access now, Cells cells, const Judge& judge) {
  if (judge.ordered_for_all(earlier, now)) return Ordered::kYes;
  const int byte = std::countr_zero(earlier.common(now));
  const auto in_next = [&] {
    return judge.ordered(earlier, now, std::countr_zero(cells) * static_cast<int>(ShadowCell::kBytes) + byte);
  };
  const bool first = in_next();
  if (earlier.lane_shift() != Access::kOneLane || now.lane_shift() != Access::kOneLane)
    while ((cells &= cells - 1) != 0)
      if (in_next() != first) return Ordered::kHere;
  return first ? Ordered::kYes : Ordered::kNo;
}

/// Makes room for `now` in cells that have four accesses, as record() does: nothing is remembered of a fifth read, else
/// the read is forgotten that came first. Returns whether that could be done; `now` is left with the cells in which it is
/// to be remembered, `at` is its place.
inline bool make_room(ShadowTile& tile, Cells full, ShadowTile::Slot& now, size_t& at) {
  for (; full != 0; full &= full - 1) {
    const Cells cell = full & -full;
    size_t read = tile.count;
    bool only_reads = !now.access.is_write();
    for (size_t i = tile.count; i-- > 0;) {
      if ((tile.cells(i) & cell) == 0) continue;
      if (!tile.access(i).is_write())
        read = i;
      else
        only_reads = false;
    }
    if (only_reads) {
      now.cells &= ~cell;
      continue;
    }
    if (read == tile.count) return false;
    tile.cells(read) &= ~cell;
    at = std::min(at, read);
  }
  return true;
}

/// record() in the cells of a tile that `now` says. False where they have to be judged one by one, for which the tile
/// is as good as before: the judge has something to say, orders some bytes only, or there is too much to remember.
///   bool ordered_for_all(Access earlier, Access now)   // every byte of it
///   bool in_order_says_nothing(Access earlier, Access now)
template <class Judge>
bool record_in_tile(ShadowTile& tile, ShadowTile::Slot now, Judge&& judge) {
  const Access& access = now.access;
  const auto is_alike = [&](size_t i) {
    const Access slot = tile.access(i);
    return slot.is_like(access) && (slot.bytes() == access.bytes() || tile.cells(i) == now.cells);
  };
  const TileMatches found = tile.matches(now);
  uint64_t known = 0;  // a bit for every slot that need not be remembered where this access touches it
  for (uint64_t left = found.meeting; left != 0; left &= left - 1) {
    const auto i = static_cast<size_t>(std::countr_zero(left));
    const auto [slot, cells] = tile.slot(i);
    if ((slot.bytes() & access.bytes()) == 0) continue;
    const Ordered order = order_of(slot, access, cells & now.cells, judge);
    if (order == Ordered::kHere) return false;
    const bool before = order == Ordered::kYes;
    if (slot.is_write() || access.is_write())
      if (before ? !judge.in_order_says_nothing(slot, access) : !judge.may_meet(slot, access)) return false;
    if (!before || (!access.is_write() && slot.is_write())) continue;
    if ((slot.bytes() & ~access.bytes()) != 0 && (cells & ~now.cells) != 0) return false;
    known |= uint64_t{1} << i;
  }
  // The first of those of which nothing is left stays as a place for `now`, so that mostly none has to move.
  size_t at = tile.count, empty = ShadowTile::kMost;
  uint64_t alike = found.same_who, meeting = found.meeting;
  if (known != 0) {
    auto kept = static_cast<size_t>(std::countr_zero(known));
    const uint64_t before = (uint64_t{1} << kept) - 1;
    alike &= before, meeting &= before;
    for (size_t i = kept; i < tile.count; ++i) {
      ShadowTile::Slot slot = tile.slot(i);
      const bool is_known = (known >> i & 1) != 0;
      if (is_known) {
        if ((slot.access.bytes() & ~access.bytes()) == 0)
          slot.cells &= ~now.cells;
        else
          slot.access.remove_bytes(access.bytes());
        if (slot.cells == 0) {
          if (empty == ShadowTile::kMost) tile.set(empty = kept++, {});
          continue;
        }
      }
      alike |= (found.same_who >> i & 1) << kept;
      meeting |= uint64_t{(slot.cells & now.cells) != 0} << kept;
      if (is_known || kept != i) tile.set(kept, slot);
      ++kept;
    }
    tile.count = static_cast<uint32_t>(kept);
    at = std::min(empty, kept);
  }
  const auto without_empty = [&] {
    if (empty == ShadowTile::kMost) return;
    tile.erase(empty);
    if (at > empty) --at;
  };
  while (alike != 0 && !is_alike(static_cast<size_t>(std::countr_zero(alike)))) alike &= alike - 1;
  const size_t like = alike != 0 ? static_cast<size_t>(std::countr_zero(alike)) : tile.count;
  if (has_four(meeting)) {
    CellCounts counts;
    for (; meeting != 0; meeting &= meeting - 1)
      counts.add(tile.cells(static_cast<size_t>(std::countr_zero(meeting))));
    const Cells added = alike != 0 ? now.cells & ~tile.cells(like) : now.cells;
    if (const Cells full = counts.four_times() & added; full != 0) {
      const bool has_room = make_room(tile, full, now, at);
      if (!has_room || now.cells == 0) {
        without_empty();
        return has_room;
      }
    }
  }
  if (alike != 0) {
    Access both = tile.access(like);
    both.add_bytes(access.bytes());
    tile.set(like, {both, tile.cells(like) | now.cells});
    without_empty();
    return true;
  }
  if (at < tile.count && tile.cells(at) == 0) {
    tile.set(at, now);
    if (at != empty) without_empty();
    return true;
  }
  without_empty();
  const bool is_one_cell = (now.cells & (now.cells - 1)) == 0;
  if (tile.count >= (is_one_cell ? ShadowTile::kMostOfOneCell : ShadowTile::kMost)) return false;
  tile.insert(at, now);
  return true;
}

/// The same for those bytes of [at, end), which lie in one tile, that now.bytes says of every 16. Returns how far it
/// came.
template <class Judge>
uint64_t record_run_in_tile(ShadowTile& tile, Access now, uint64_t at, uint64_t end, Judge&& judge) {
  constexpr uint64_t kCell = ShadowCell::kBytes;
  ShadowTile::Slot part{now, 0};
  while (at < end) {
    const uint64_t in_cell = at % kCell, cell = at % kTileBytes / kCell;
    uint64_t bytes = (end - at) / kCell * kCell;
    if (in_cell == 0 && bytes != 0) {
      part.cells = kAllCells >> (kCellsInTile - bytes / kCell) << cell;
      part.access.set_bytes(now.bytes());
    } else {
      bytes = std::min(kCell - in_cell, end - at);
      part.cells = Cells{1} << cell;
      part.access.set_bytes(static_cast<uint16_t>((((1u << bytes) - 1) << in_cell) & now.bytes()));
    }
    if (part.access.bytes() != 0 && !record_in_tile(tile, part, judge)) break;
    at += bytes;
  }
  return at;
}

/// Of one CTA's shared memory.
class SharedShadow {
 public:
  SharedShadow() = default;
  SharedShadow(SharedShadow&&) = default;
  SharedShadow& operator=(SharedShadow&&) = default;
  ~SharedShadow() {
    if (groups_.capacity() > spare_groups().capacity() && groups_.capacity() <= kMostKept)
      spare_groups() = std::move(groups_);
  }
  bool empty() const { return tiles_.empty(); }
  void resize(uint32_t bytes) {
    tiles_ = RecycledBlock((bytes + kTileBytes - 1) / kTileBytes * sizeof(ShadowTile));
    for (uint64_t at = 0; at < bytes; at += kTileBytes) tile(at).clear();
    groups_ = std::move(spare_groups());
  }
  ShadowTile& tile(uint64_t at) { return reinterpret_cast<ShadowTile*>(tiles_.data())[at / kTileBytes]; }
  ShadowCell* cells(uint64_t at) { return groups_[tile(at).group].data(); }
  /// Cells are four times as large as what they stand for, and seldom in the first cache.
  void prefetch(uint64_t at) {
    if (tile(at).is_split()) __builtin_prefetch(cells(at) + at % kTileBytes / ShadowCell::kBytes, 1);
  }
  void split(uint64_t at) {
    uint32_t group = used_groups_;
    if (free_.empty()) {
      if (++used_groups_ > groups_.size()) groups_.resize(std::max<size_t>(8, groups_.size() * 2));
    } else {
      group = free_.back();
      free_.pop_back();
    }
    split_tile(tile(at), groups_[group].data());
    tile(at).mark_split(group);
  }
  void unite(uint64_t at, Access now) {
    free_.push_back(tile(at).group);
    tile(at).clear();
    tile(at).insert(0, {now, kAllCells});
  }

 private:
  using Groups = std::vector<std::array<ShadowCell, kCellsInTile>>;
  static constexpr size_t kMostKept = 512;
  /// Of a CTA that the same host thread has run before: fresh pages take longer than to fill them.
  static Groups& spare_groups() {
    static thread_local Groups spare;
    return spare;
  }
  RecycledBlock tiles_;
  Groups groups_;  // more than are used
  uint32_t used_groups_ = 0;
  std::vector<uint32_t> free_;
};

/// Records `now` in the shadow of [from, end), of an access that began at `begin`, up to the first place where that is
/// not silent or a tile is split. Returns where that is.
template <class Judge>
uint64_t record_tiles(SharedShadow& shadow, Access now, uint64_t begin, uint64_t from, uint64_t end,
                      Judge& judge) {
  for (uint64_t at = from; at < end;) {
    ShadowTile& tile = shadow.tile(at);
    const uint64_t tile_end = std::min(end, (at / kTileBytes + 1) * kTileBytes);
    if (tile.is_split()) return at;
    const uint64_t recorded =
        record_run_in_tile(tile, in_block(now, begin, at, kTileBytes), at, tile_end, judge);
    if (recorded != tile_end) return recorded;
    at = tile_end;
  }
  return end;
}
/// The same to the end.
template <class Judge>
void record_run(SharedShadow& shadow, Access now, uint64_t begin, uint64_t from, uint64_t end, Judge& judge) {
  for (uint64_t at = from; (at = record_tiles(shadow, now, begin, at, end, judge)) < end;) {
    const uint64_t tile_end = std::min(end, (at / kTileBytes + 1) * kTileBytes);
    const Access whole = in_block(now, begin, at, kTileBytes);
    if (!shadow.tile(at).is_split()) shadow.split(at);
    record_cells(shadow.cells(at), kTileBytes, whole, at, tile_end, judge);
    if (tile_end - at == kTileBytes && now.is_write() && are_alike({shadow.cells(at), kCellsInTile}, whole))
      shadow.unite(at, whole);
    at = tile_end;
  }
}

}  // namespace imbrex::vgpu
