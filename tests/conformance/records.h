// SPDX-License-Identifier: Apache-2.0
// What a chip answered, kept as text: one line a form with a hash of the output and its first bytes.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "kernel.h"

namespace imbrex::conformance {

struct Record {
  uint64_t hash = 0;       // of the whole output
  int64_t bytes = 0;       // of the output
  std::string first = {};  // its first bytes, in hexadecimal
  std::string fault = {};  // what the chip said instead of an output
};

/// By family, then name.
using Records = std::map<std::string, std::map<std::string, Record>>;

uint64_t hash_of(std::span<const uint8_t> bytes);
Record record_of(std::span<const uint8_t> output, int64_t first_bytes);
std::string hexadecimal(std::span<const uint8_t> bytes);

/// A line of a file, without its end.
std::string line_of(const MicroKernel& kernel, const Record& record);
/// Adds the lines of a file. Throws Error when it is no such file.
void read_records(const std::string& path, Records& out);
/// The record of a kernel, or null.
const Record* find_record(const Records& records, const MicroKernel& kernel);

/// Where an output differs from a record: "" when it does not.
std::string difference(std::span<const uint8_t> output, const Record& record);

}  // namespace imbrex::conformance
