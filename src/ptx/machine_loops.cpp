// SPDX-License-Identifier: Apache-2.0
#include "ptx/machine_loops.h"

#include <algorithm>
#include <cstring>
#include <map>

namespace imbrex::ptx {
namespace {

constexpr size_t kBytes = 16;
constexpr uint64_t kBranch = 0x147, kExit = 0x14D, kReturn = 0x150;  // 9 bits
constexpr uint64_t kAlways = 7;  // the predicate of what is not predicated
constexpr size_t kNone = ~size_t{0};

struct Block {
  size_t begin = 0, end = 0;  // instructions
  std::vector<size_t> next, before;
};

class Code {
 public:
  Code(std::string_view bytes, int sm) : bytes_(bytes), sm_(sm) {}
  size_t size() const { return bytes_.size() / kBytes; }
  uint64_t low(size_t i) const {
    uint64_t value;
    std::memcpy(&value, bytes_.data() + kBytes * i, sizeof value);
    return value;
  }
  bool is_branch(size_t i) const { return (low(i) & 0x1FF) == kBranch; }
  bool ends(size_t i) const {
    const uint64_t op = low(i) & 0x1FF;
    return (op == kBranch || op == kExit || op == kReturn) && (low(i) >> 12 & 0xF) == kAlways;
  }
  bool ends_block(size_t i) const {
    const uint64_t op = low(i) & 0x1FF;
    return op == kBranch || op == kExit || op == kReturn;
  }
  /// Where a branch leads; kNone outside of the code. The distance is in bytes up to Ada, and in words, its lowest eight bits apart,
  /// from Hopper on.
  size_t target(size_t i) const {
    const auto word = static_cast<int64_t>(low(i));
    const int64_t words = sm_ >= 90 ? (word >> 34) * 256 + (word >> 16 & 0xFF) : (word >> 32) / 4;
    const int64_t at = static_cast<int64_t>(i) + 1 + words / 4;
    return at >= 0 && at < static_cast<int64_t>(size()) ? static_cast<size_t>(at) : kNone;
  }

 private:
  std::string_view bytes_;
  int sm_;
};

std::vector<Block> blocks_of(const Code& code) {
  std::vector<bool> begins(code.size() + 1);
  begins[0] = begins[code.size()] = true;
  for (size_t i = 0; i < code.size(); ++i) {
    if (!code.ends_block(i)) continue;
    begins[i + 1] = true;
    if (const size_t target = code.is_branch(i) ? code.target(i) : kNone; target != kNone)
      begins[target] = true;
  }
  std::vector<Block> blocks;
  std::vector<size_t> block_of(code.size());
  for (size_t i = 0; i < code.size(); ++i) {
    if (begins[i]) blocks.push_back({i, i, {}, {}});
    blocks.back().end = i + 1;
    block_of[i] = blocks.size() - 1;
  }
  for (size_t b = 0; b < blocks.size(); ++b) {
    const size_t last = blocks[b].end - 1;
    if (const size_t target = code.is_branch(last) ? code.target(last) : kNone; target != kNone)
      blocks[b].next.push_back(block_of[target]);
    if (!code.ends(last) && b + 1 < blocks.size()) blocks[b].next.push_back(b + 1);
    for (size_t next : blocks[b].next) blocks[next].before.push_back(b);
  }
  return blocks;
}

/// Of each block that one before which every way to it leads and which is nearest to it (Cooper, Harvey, Kennedy); kNone where no way
/// leads to it.
std::vector<size_t> dominators(const std::vector<Block>& blocks, std::vector<size_t>& number) {
  std::vector<size_t> order, stack{0}, seen_next(blocks.size());
  std::vector<bool> seen(blocks.size());
  seen[0] = true;
  while (!stack.empty()) {
    const size_t b = stack.back();
    if (seen_next[b] < blocks[b].next.size()) {
      const size_t next = blocks[b].next[seen_next[b]++];
      if (!seen[next]) {
        seen[next] = true;
        stack.push_back(next);
      }
    } else {
      order.push_back(b);
      stack.pop_back();
    }
  }
  number.assign(blocks.size(), 0);
  for (size_t i = 0; i < order.size(); ++i) number[order[i]] = i + 1;
  std::vector<size_t> dominator(blocks.size(), kNone);
  dominator[0] = 0;
  for (bool changes = true; changes;) {
    changes = false;
    for (auto b = order.rbegin(); b != order.rend(); ++b) {
      if (*b == 0) continue;
      size_t common = kNone;
      for (size_t before : blocks[*b].before) {
        if (dominator[before] == kNone) continue;
        if (common == kNone) {
          common = before;
          continue;
        }
        for (size_t other = before; common != other;) {
          while (number[common] < number[other]) common = dominator[common];
          while (number[other] < number[common]) other = dominator[other];
        }
      }
      changes |= dominator[*b] != common;
      dominator[*b] = common;
    }
  }
  return dominator;
}

}  // namespace

std::vector<uint8_t> machine_loop_depths(std::string_view bytes, int sm) {
  const Code code(bytes, sm);
  std::vector<uint8_t> depths(code.size());
  if (code.size() == 0) return depths;
  const std::vector<Block> blocks = blocks_of(code);
  std::vector<size_t> number;
  const std::vector<size_t> dominator = dominators(blocks, number);
  const auto dominates = [&](size_t a, size_t b) {
    if (dominator[b] == kNone) return false;
    while (number[b] < number[a]) b = dominator[b];
    return a == b;
  };
  std::map<size_t, std::vector<bool>> loops;  // by their first block
  for (size_t b = 0; b < blocks.size(); ++b)
    for (size_t head : blocks[b].next) {
      if (!dominates(head, b)) continue;
      std::vector<bool>& body = loops.try_emplace(head, blocks.size()).first->second;
      body[head] = true;
      std::vector<size_t> left{b};
      while (!left.empty()) {
        const size_t each = left.back();
        left.pop_back();
        if (body[each]) continue;
        body[each] = true;
        left.insert(left.end(), blocks[each].before.begin(), blocks[each].before.end());
      }
    }
  for (const auto& [head, body] : loops)
    for (size_t b = 0; b < blocks.size(); ++b)
      if (body[b])
        for (size_t i = blocks[b].begin; i < blocks[b].end; ++i)
          depths[i] = static_cast<uint8_t>(std::min(255, depths[i] + 1));
  return depths;
}

}  // namespace imbrex::ptx
