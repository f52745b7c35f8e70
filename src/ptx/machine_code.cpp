// SPDX-License-Identifier: Apache-2.0
#include "ptx/machine_code.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "ptx/machine_loops.h"

namespace imbrex::ptx {
namespace {

constexpr size_t kInstructionBytes = 16;
constexpr uint64_t kHeaderBytes = 64, kSymbolBytes = 24;
constexpr size_t kRelocationBytes = 16, kAddend = 8;
constexpr uint32_t kNoBits = 8;           // type of a section that the file does not hold
constexpr uint8_t kRegisterCount = 0x2F;  // .nv.info: of a symbol, its registers

/// Reads numbers; beyond the end everything is 0.
class Bytes {
 public:
  explicit Bytes(std::string_view bytes) : bytes_(bytes) {}
  template <class T>
  T at(size_t offset) const {
    T value{};
    if (offset <= bytes_.size() && bytes_.size() - offset >= sizeof(T))
      std::memcpy(&value, bytes_.data() + offset, sizeof(T));
    return value;
  }
  std::string_view part(size_t offset, size_t size) const {
    if (offset > bytes_.size()) return {};
    return bytes_.substr(offset, size);
  }
  std::string_view text(size_t offset) const {
    const std::string_view rest = part(offset, bytes_.size());
    return rest.substr(0, rest.find('\0'));
  }
  size_t size() const { return bytes_.size(); }

 private:
  std::string_view bytes_;
};

struct Section {
  std::string_view name, bytes;
};

class Elf {
 public:
  explicit Elf(std::string_view cubin) : file_(cubin) {
    if (!cubin.starts_with("\x7F"
                           "ELF\x02"))
      return;
    const auto headers = file_.at<uint64_t>(0x28);
    const size_t count = file_.at<uint16_t>(0x3C), names = file_.at<uint16_t>(0x3E);
    const auto offset_of = [&](size_t section) {
      return file_.at<uint64_t>(headers + kHeaderBytes * section + 24);
    };
    for (size_t i = 0; i < count; ++i) {
      const size_t header = headers + kHeaderBytes * i;
      const bool is_there = file_.at<uint32_t>(header + 4) != kNoBits;
      sections_.push_back({file_.text(offset_of(names) + file_.at<uint32_t>(header)),
                           is_there ? file_.part(offset_of(i), file_.at<uint64_t>(header + 32)) : ""});
    }
  }
  std::string_view find(std::string_view name) const {
    for (const Section& section : sections_)
      if (section.name == name) return section.bytes;
    return {};
  }
  std::string_view symbol(uint32_t index) const {
    const Bytes symbols(find(".symtab")), names(find(".strtab"));
    const size_t at = kSymbolBytes * index;
    const std::string_view name = names.text(symbols.at<uint32_t>(at));
    const size_t section = symbols.at<uint16_t>(at + 6);
    return name.empty() && section < sections_.size() ? sections_[section].name : name;
  }

 private:
  Bytes file_;
  std::vector<Section> sections_;
};

/// A program of DWARF's line table, version 2 to 4, as far as addresses and lines go.
class LineProgram {
 public:
  explicit LineProgram(std::string_view bytes) : bytes_(bytes) {}

  struct Row {
    uint64_t address = 0;
    int line = 0;
  };
  /// Rows of the sequences for which `is_wanted(offset of their address in the section)`.
  template <class IsWanted>
  std::vector<Row> rows(IsWanted&& is_wanted) {
    std::vector<Row> result;
    for (size_t unit = 0; unit + 15 < bytes_.size();) {
      const size_t end = unit + 4 + bytes_.at<uint32_t>(unit), version = bytes_.at<uint16_t>(unit + 4);
      if (end > bytes_.size() || version < 2 || version > 4) break;
      size_t header = unit + 10;
      at_ = header + bytes_.at<uint32_t>(unit + 6);
      const auto least = bytes_.at<uint8_t>(header);
      header += version == 4 ? 2 : 1;  // most operations per instruction
      const auto line_base = bytes_.at<int8_t>(header + 1);
      const auto line_range = std::max<uint8_t>(1, bytes_.at<uint8_t>(header + 2)),
                 special = bytes_.at<uint8_t>(header + 3);
      const size_t lengths = header + 4;
      Row row{0, 1};
      bool wanted = false;
      while (at_ < end) {
        const uint8_t op = next<uint8_t>();
        if (op >= special) {
          row.address += static_cast<uint64_t>(least) * ((op - special) / line_range);
          row.line += line_base + (op - special) % line_range;
          if (wanted) result.push_back(row);
        } else if (op == 0) {
          const uint64_t size = unsigned_number();
          const size_t after = at_ + size;
          const uint8_t what = next<uint8_t>();
          if (what == 2) {
            wanted = is_wanted(at_);
            row.address = bytes_.at<uint64_t>(at_);
          } else if (what == 1) {
            row = {0, 1};
          }
          at_ = after;
        } else if (op == 1) {
          if (wanted) result.push_back(row);
        } else if (op == 2) {
          row.address += least * unsigned_number();
        } else if (op == 3) {
          row.line += static_cast<int>(signed_number());
        } else if (op == 8) {
          row.address += static_cast<uint64_t>(least) * ((255 - special) / line_range);
        } else if (op == 9) {
          row.address += next<uint16_t>();
        } else {
          for (int i = bytes_.at<uint8_t>(lengths + op - 1); i > 0; --i) unsigned_number();
        }
      }
      unit = end;
    }
    std::stable_sort(result.begin(), result.end(),
                     [](const Row& a, const Row& b) { return a.address < b.address; });
    return result;
  }

 private:
  template <class T>
  T next() {
    const T value = bytes_.at<T>(at_);
    at_ += sizeof(T);
    return value;
  }
  uint64_t unsigned_number() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const uint8_t byte = next<uint8_t>();
      value |= static_cast<uint64_t>(byte & 0x7F) << shift;
      if (byte < 0x80) break;
    }
    return value;
  }
  int64_t signed_number() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64;) {
      const uint8_t byte = next<uint8_t>();
      value |= static_cast<uint64_t>(byte & 0x7F) << shift;
      shift += 7;
      if (byte < 0x80) {
        if ((byte & 0x40) != 0 && shift < 64) value |= ~uint64_t{0} << shift;
        break;
      }
    }
    return static_cast<int64_t>(value);
  }

  Bytes bytes_;
  size_t at_ = 0;
};

int registers_of(const Elf& elf, std::string_view kernel) {
  const Bytes info(elf.find(".nv.info"));
  for (size_t at = 0; at + 4 <= info.size();) {
    const auto format = info.at<uint8_t>(at), attribute = info.at<uint8_t>(at + 1);
    const auto size = info.at<uint16_t>(at + 2);
    if (format == 4 && attribute == kRegisterCount && elf.symbol(info.at<uint32_t>(at + 4)) == kernel)
      return static_cast<int>(info.at<uint32_t>(at + 8));
    at += 4 + (format == 4 ? size : 0);
  }
  return 0;
}

}  // namespace

std::optional<MachineCode> read_machine_code(std::string_view cubin, std::string_view kernel, int sm) {
  const Elf elf(cubin);
  const std::string section = ".text." + std::string(kernel);
  const Bytes code(elf.find(section));
  const std::string_view lines = elf.find(".nv_debug_line_sass");
  MachineCode machine;
  machine.registers = registers_of(elf, kernel);
  if (code.size() == 0 || machine.registers == 0) return std::nullopt;

  // A cubin of several kernels has a sequence of rows for each. From Hopper on its relocations have addends.
  const std::string_view with_addends = elf.find(".rela.nv_debug_line_sass");
  const Bytes relocations(with_addends.empty() ? elf.find(".rel.nv_debug_line_sass") : with_addends);
  const size_t step = kRelocationBytes + (with_addends.empty() ? 0 : kAddend);
  const std::vector<LineProgram::Row> rows = LineProgram(lines).rows([&](size_t offset) {
    for (size_t at = 0; at < relocations.size(); at += step) {
      if (relocations.at<uint64_t>(at) != offset) continue;
      const std::string_view symbol = elf.symbol(relocations.at<uint32_t>(at + 12));
      return symbol == section || symbol == kernel;
    }
    return false;
  });
  if (rows.empty()) return std::nullopt;
  size_t row = 0;
  int line = 0;
  for (size_t at = 0; at + kInstructionBytes <= code.size(); at += kInstructionBytes) {
    for (; row < rows.size() && rows[row].address <= at; ++row) line = rows[row].line;
    const auto low = code.at<uint64_t>(at), high = code.at<uint64_t>(at + 8);
    machine.instructions.push_back(
        {line, static_cast<uint16_t>(low & 0x1FF), static_cast<uint8_t>(high >> 41 & 0xF), 0,
         static_cast<uint8_t>(high >> 52 & 0x3F), static_cast<uint8_t>(high >> 46 & 7)});
  }
  const std::vector<uint8_t> depths = machine_loop_depths(code.part(0, code.size()), sm);
  for (size_t i = 0; i < machine.instructions.size(); ++i) machine.instructions[i].depth = depths[i];
  return machine;
}

}  // namespace imbrex::ptx
