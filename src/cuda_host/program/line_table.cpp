// SPDX-License-Identifier: Apache-2.0
// DWARF 5, 6.2 "Line Number Information", and the tables of versions 2 to 4, which differ in how files are named.
#include "cuda_host/program/line_table.h"

#include <elf.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <string_view>
#include <vector>

namespace imbrex::cuda {
namespace {

constexpr uint64_t kMostBytes = uint64_t{1} << 28;  // of a section

/// Reads numbers from bytes; past the end it reads zeros and is no longer good.
class Cursor {
 public:
  explicit Cursor(std::string_view bytes) : rest_(bytes) {}
  bool is_good() const { return is_good_; }
  bool is_empty() const { return rest_.empty(); }
  std::string_view take(uint64_t count) {
    is_good_ = is_good_ && count <= rest_.size();
    const std::string_view taken = rest_.substr(0, is_good_ ? count : rest_.size());
    rest_.remove_prefix(taken.size());
    return taken;
  }
  template <class T>
  T number() {
    const std::string_view bytes = take(sizeof(T));
    T value{};
    if (bytes.size() == sizeof(T)) std::memcpy(&value, bytes.data(), sizeof(T));
    return value;
  }
  uint64_t number_of(uint64_t bytes) {
    switch (bytes) {
      case 1:
        return number<uint8_t>();
      case 2:
        return number<uint16_t>();
      case 4:
        return number<uint32_t>();
      default:
        return number<uint64_t>();
    }
  }
  uint64_t unsigned_leb() { return leb(false); }
  int64_t signed_leb() { return static_cast<int64_t>(leb(true)); }
  std::string_view text() {
    const std::string_view found = take(std::min(rest_.find('\0'), rest_.size()));
    take(1);
    return found;
  }

 private:
  uint64_t leb(bool is_signed) {
    uint64_t value = 0;
    for (unsigned shift = 0;; shift += 7) {
      const auto byte = number<uint8_t>();
      if (shift < 64) value |= uint64_t{byte & 0x7Fu} << shift;
      if ((byte & 0x80) != 0 && is_good_) continue;
      if (is_signed && (byte & 0x40) != 0 && shift + 7 < 64) value |= ~uint64_t{0} << (shift + 7);
      return value;
    }
  }

  std::string_view rest_;
  bool is_good_ = true;
};

struct Sections {
  std::string line, line_strings, strings;  // .debug_line, .debug_line_str, .debug_str
};

std::string read(std::ifstream& file, uint64_t offset, uint64_t bytes) {
  std::string content(std::min(bytes, kMostBytes), '\0');
  file.clear();
  file.seekg(static_cast<std::streamoff>(offset));
  file.read(content.data(), static_cast<std::streamsize>(content.size()));
  content.resize(static_cast<size_t>(file.gcount()));
  return content;
}

Sections sections_of(std::ifstream& file) {
  Sections found;
  const std::string start = read(file, 0, sizeof(Elf64_Ehdr));
  if (start.size() != sizeof(Elf64_Ehdr) || !start.starts_with(ELFMAG) || start[EI_CLASS] != ELFCLASS64)
    return found;
  Cursor header{start};
  const auto elf = header.number<Elf64_Ehdr>();
  const std::string table = read(file, elf.e_shoff, uint64_t{elf.e_shnum} * sizeof(Elf64_Shdr));
  std::vector<Elf64_Shdr> all;
  for (Cursor rows{table}; !rows.is_empty() && rows.is_good();) all.push_back(rows.number<Elf64_Shdr>());
  if (elf.e_shstrndx >= all.size()) return found;
  const std::string names = read(file, all[elf.e_shstrndx].sh_offset, all[elf.e_shstrndx].sh_size);
  for (const Elf64_Shdr& section : all) {
    if ((section.sh_flags & SHF_COMPRESSED) != 0 || section.sh_name >= names.size()) continue;
    const std::string_view name = names.c_str() + section.sh_name;
    std::string* const to = name == ".debug_line"       ? &found.line
                            : name == ".debug_line_str" ? &found.line_strings
                            : name == ".debug_str"      ? &found.strings
                                                        : nullptr;
    if (to != nullptr) *to = read(file, section.sh_offset, section.sh_size);
  }
  return found;
}

/// The lines of one compilation.
class Unit {
 public:
  Unit(Cursor bytes, uint64_t offset_bytes, const Sections& sections)
      : bytes_(bytes), offset_bytes_(offset_bytes), sections_(sections) {}

  /// "file:line", or "" where the address is none of the unit's.
  std::string find(uint64_t address) {
    version_ = bytes_.number<uint16_t>();
    if (version_ < 2 || version_ > 5) return "";
    if (version_ >= 5) bytes_.take(2);  // sizes of addresses and segments
    Cursor header(bytes_.take(bytes_.number_of(offset_bytes_)));
    instruction_bytes_ = header.number<uint8_t>();
    if (version_ >= 4) header.take(1);  // operations in an instruction
    header.take(1);                     // is_stmt to begin with
    line_base_ = header.number<int8_t>();
    line_range_ = std::max<uint8_t>(header.number<uint8_t>(), 1);
    const auto first_special = header.number<uint8_t>();
    const std::string_view lengths = header.take(std::max(first_special, uint8_t{1}) - 1u);
    if (version_ >= 5) {
      folders_ = entries(header);
      files_ = entries(header);
    } else {
      old_entries(header);
    }
    return header.is_good() && run(address, first_special, lengths) ? place() : "";
  }

 private:
  struct Entry {
    std::string_view name;
    uint64_t folder = 0;
  };
  struct Row {
    uint64_t address = 0, file = 1;
    int64_t line = 1;
  };

  std::string_view text_at(std::string_view section, uint64_t offset) const {
    return offset < section.size() ? Cursor(section.substr(offset)).text() : std::string_view();
  }

  std::vector<Entry> entries(Cursor& header) const {
    enum Content : uint64_t { kPath = 1, kFolder = 2 };
    enum Form : uint64_t { kBlock = 9, kText = 8, kString = 0xE, kLineString = 0x1F, kLeb = 0xF };
    std::vector<std::pair<uint64_t, uint64_t>> format(header.number<uint8_t>());
    for (auto& [content, form] : format) content = header.unsigned_leb(), form = header.unsigned_leb();
    std::vector<Entry> found;
    const uint64_t count = header.unsigned_leb();
    while (found.size() < count && header.is_good()) {
      Entry& entry = found.emplace_back();
      for (const auto& [content, form] : format) {
        std::string_view text;
        uint64_t number = 0;
        if (form == kText)
          text = header.text();
        else if (form == kString || form == kLineString)
          text = text_at(form == kString ? sections_.strings : sections_.line_strings,
                         header.number_of(offset_bytes_));
        else if (form == kLeb)
          number = header.unsigned_leb();
        else if (form == kBlock)
          header.take(header.unsigned_leb());
        else
          number = fixed(header, form);
        if (content == kPath) entry.name = text;
        if (content == kFolder) entry.folder = number;
      }
    }
    return found;
  }
  /// Of the forms data1, data2, data4, data8 and data16.
  static uint64_t fixed(Cursor& header, uint64_t form) {
    switch (form) {
      case 0xB:
        return header.number<uint8_t>();
      case 0x5:
        return header.number<uint16_t>();
      case 0x6:
        return header.number<uint32_t>();
      case 0x7:
        return header.number<uint64_t>();
      case 0x1E:
        header.take(16);
        return 0;
      default:
        header.take(kMostBytes);  // not known: the header is not good
        return 0;
    }
  }

  /// Folders and files of versions 2 to 4 count from 1; folder 0 is the compiler's, whose name stands elsewhere.
  void old_entries(Cursor& header) {
    folders_.push_back({});
    for (std::string_view name; !(name = header.text()).empty();) folders_.push_back({name});
    files_.push_back({});
    for (std::string_view name; !(name = header.text()).empty();) {
      files_.push_back({name, header.unsigned_leb()});
      header.unsigned_leb();
      header.unsigned_leb();
    }
  }

  /// Rows come in order of their addresses; one holds up to the next. Sequences of them come in any order.
  bool row_ends(const Row& next, uint64_t address) {
    const bool is_found = has_row_ && row_.address <= address && address < next.address;
    if (!is_found) row_ = next, has_row_ = true;
    return is_found;
  }

  bool run(uint64_t address, uint8_t first_special, std::string_view lengths) {
    Row now;
    const auto advance = [&](uint64_t operation) { now.address += operation * instruction_bytes_; };
    while (!bytes_.is_empty() && bytes_.is_good()) {
      const auto code = bytes_.number<uint8_t>();
      if (code >= first_special) {
        const unsigned step = code - first_special;
        advance(step / line_range_);
        now.line += line_base_ + static_cast<int>(step % line_range_);
        if (row_ends(now, address)) return true;
        continue;
      }
      switch (code) {
        case 0: {
          Cursor operands(bytes_.take(bytes_.unsigned_leb()));
          const auto extended = operands.number<uint8_t>();
          if (extended == 1) {  // the end of a sequence
            if (row_ends(now, address)) return true;
            now = Row();
            has_row_ = false;
          } else if (extended == 2) {
            now.address = operands.number<uint64_t>();
          }
          break;
        }
        case 1:
          if (row_ends(now, address)) return true;
          break;
        case 2:
          advance(bytes_.unsigned_leb());
          break;
        case 3:
          now.line += bytes_.signed_leb();
          break;
        case 4:
          now.file = bytes_.unsigned_leb();
          break;
        case 8:
          advance((255u - first_special) / line_range_);
          break;
        case 9:
          now.address += bytes_.number<uint16_t>();
          break;
        default:
          for (int i = 0; i < lengths[code - 1u]; ++i) bytes_.unsigned_leb();
      }
    }
    return false;
  }

  std::string place() const {
    if (row_.file >= files_.size()) return "";
    const Entry& file = files_[row_.file];
    std::string path(file.name);
    const auto put_before = [&](std::string_view folder) {
      if (!path.starts_with('/') && !folder.empty()) path = fmt::format("{}/{}", folder, path);
    };
    if (file.folder < folders_.size()) put_before(folders_[file.folder].name);
    if (!folders_.empty()) put_before(folders_[0].name);
    return fmt::format("{}:{}", path, row_.line);
  }

  Cursor bytes_;
  uint64_t offset_bytes_;
  const Sections& sections_;
  int version_ = 0;
  uint64_t instruction_bytes_ = 1;
  int line_base_ = 0;
  unsigned line_range_ = 1;
  std::vector<Entry> folders_, files_;
  Row row_;
  bool has_row_ = false;
};

}  // namespace

std::string source_line(const std::string& file, uint64_t address) {
  std::ifstream in(file, std::ios::binary);
  const Sections sections = sections_of(in);
  for (Cursor units{sections.line}; !units.is_empty() && units.is_good();) {
    uint64_t offset_bytes = 4;
    uint64_t length = units.number<uint32_t>();
    if (length == 0xFFFF'FFFF) offset_bytes = 8, length = units.number<uint64_t>();
    if (std::string place = Unit(Cursor(units.take(length)), offset_bytes, sections).find(address);
        !place.empty())
      return place;
  }
  return "";
}

}  // namespace imbrex::cuda
