// SPDX-License-Identifier: Apache-2.0
#include "records.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <fstream>

#include "imbrex/core/error.h"

namespace imbrex::conformance {
namespace {

constexpr char kBetween = '\t';

std::vector<std::string> fields_of(const std::string& line) {
  std::vector<std::string> fields(1);
  for (char c : line)
    if (c == kBetween)
      fields.emplace_back();
    else
      fields.back() += c;
  return fields;
}

}  // namespace

uint64_t hash_of(std::span<const uint8_t> bytes) {
  uint64_t hash = 0xCBF29CE484222325u;
  for (uint8_t b : bytes) hash = (hash ^ b) * 0x100000001B3u;
  return hash ^ hash >> 29;
}

std::string hexadecimal(std::span<const uint8_t> bytes) {
  std::string text;
  for (uint8_t b : bytes) text += fmt::format("{:02x}", b);
  return text;
}

Record record_of(std::span<const uint8_t> output, int64_t first_bytes) {
  const auto kept = static_cast<size_t>(std::min<int64_t>(first_bytes, static_cast<int64_t>(output.size())));
  return {hash_of(output), static_cast<int64_t>(output.size()), hexadecimal(output.first(kept))};
}

std::string line_of(const MicroKernel& kernel, const Record& record) {
  if (!record.fault.empty())
    return fmt::format("{}\t{}\tfault\t{}", kernel.family, kernel.name, record.fault);
  return fmt::format("{}\t{}\t{:016x}\t{}\t{}", kernel.family, kernel.name, record.hash, record.bytes,
                     record.first);
}

void read_records(const std::string& path, Records& out) {
  std::ifstream file(path);
  if (!file) throw Error(Diagnostic{{}, "cannot read " + path, {}, ""});
  std::string line;
  for (int number = 1; std::getline(file, line); ++number) {
    if (line.empty()) continue;
    const std::vector<std::string> fields = fields_of(line);
    Record record;
    if (fields.size() == 4 && fields[2] == "fault") {
      record.fault = fields[3];
    } else {
      bool is_good = fields.size() == 5;
      if (is_good) {
        const std::string &hash = fields[2], &bytes = fields[3];
        is_good = std::from_chars(hash.data(), hash.data() + hash.size(), record.hash, 16).ptr ==
                      hash.data() + hash.size() &&
                  std::from_chars(bytes.data(), bytes.data() + bytes.size(), record.bytes).ptr ==
                      bytes.data() + bytes.size();
        record.first = fields[4];
      }
      if (!is_good)
        throw Error(Diagnostic{{}, fmt::format("{}:{}: this is no record", path, number), {}, ""});
    }
    out[fields[0]][fields[1]] = std::move(record);
  }
}

const Record* find_record(const Records& records, const MicroKernel& kernel) {
  const auto family = records.find(kernel.family);
  if (family == records.end()) return nullptr;
  const auto found = family->second.find(kernel.name);
  return found == family->second.end() ? nullptr : &found->second;
}

std::string difference(std::span<const uint8_t> output, const Record& record) {
  if (!record.fault.empty()) return "the chip: " + record.fault;
  if (static_cast<int64_t>(output.size()) != record.bytes)
    return fmt::format("{} bytes, the chip wrote {}", output.size(), record.bytes);
  if (hash_of(output) == record.hash) return "";
  const size_t kept = record.first.size() / 2;
  const std::string got = hexadecimal(output.first(std::min(kept, output.size())));
  size_t first = std::string::npos, wrong = 0;
  for (size_t i = 0; i < kept; ++i)
    if (got.compare(2 * i, 2, record.first, 2 * i, 2) != 0) {
      ++wrong;
      if (first == std::string::npos) first = i;
    }
  if (wrong == 0) return fmt::format("differs after the first {} bytes", kept);
  const size_t from = first / 8 * 8;
  return fmt::format("{} of the first {} bytes differ, the first at {}: virtual {}, chip {} (bytes {} ...)",
                     wrong, kept, first, got.substr(2 * from, 32), record.first.substr(2 * from, 32), from);
}

}  // namespace imbrex::conformance
