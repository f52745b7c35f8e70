// SPDX-License-Identifier: Apache-2.0
#include "cuda_host/host/host_symbols.h"

#include <dlfcn.h>
#include <elf.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <iterator>
#include <vector>

#include "cuda_host/host/run_log.h"
#include "cuda_host/program/line_table.h"

namespace imbrex::cuda {
namespace {

/// `count` objects from a place in a file; fewer where it ends before.
template <class T>
std::vector<T> read_table(std::ifstream& file, uint64_t offset, uint64_t bytes) {
  constexpr uint64_t kMostBytes = uint64_t{1} << 28;
  std::vector<T> table(std::min(bytes, kMostBytes) / sizeof(T));
  file.clear();
  file.seekg(static_cast<std::streamoff>(offset));
  file.read(reinterpret_cast<char*>(table.data()), static_cast<std::streamsize>(table.size() * sizeof(T)));
  table.resize(static_cast<size_t>(file.gcount()) / sizeof(T));
  return table;
}

struct Found {
  uint64_t in_file = 0;  // the address as the file counts
  std::string function;
};

/// `offset` bytes behind where the file is loaded.
Found look_up(std::ifstream& file, uint64_t offset) {
  Found found{offset, ""};
  const std::vector<Elf64_Ehdr> header = read_table<Elf64_Ehdr>(file, 0, sizeof(Elf64_Ehdr));
  if (header.empty() || std::memcmp(header[0].e_ident, ELFMAG, SELFMAG) != 0 ||
      header[0].e_ident[EI_CLASS] != ELFCLASS64)
    return found;
  for (const Elf64_Phdr& segment :
       read_table<Elf64_Phdr>(file, header[0].e_phoff, header[0].e_phnum * sizeof(Elf64_Phdr)))
    if (segment.p_type == PT_LOAD) {  // the first is the lowest
      found.in_file = offset + segment.p_vaddr - segment.p_offset;
      break;
    }
  const auto sections =
      read_table<Elf64_Shdr>(file, header[0].e_shoff, header[0].e_shnum * sizeof(Elf64_Shdr));
  for (const Elf64_Shdr& section : sections) {
    if (section.sh_type != SHT_SYMTAB || section.sh_link >= sections.size()) continue;
    for (const Elf64_Sym& symbol : read_table<Elf64_Sym>(file, section.sh_offset, section.sh_size)) {
      if (ELF64_ST_TYPE(symbol.st_info) != STT_FUNC || found.in_file < symbol.st_value ||
          found.in_file >= symbol.st_value + symbol.st_size)
        continue;
      constexpr uint64_t kLongest = 4096;
      const auto name =
          read_table<char>(file, sections[section.sh_link].sh_offset + symbol.st_name, kLongest);
      found.function.assign(name.begin(), std::ranges::find(name, '\0'));
    }
  }
  return found;
}

}  // namespace

std::string described_address(uint64_t address) {
  Dl_info info{};
  if (dladdr(reinterpret_cast<const void*>(address), &info) == 0 || info.dli_fname == nullptr)
    return fmt::format("0x{:x}", address);
  std::string path = info.dli_fname;
  std::ifstream file(path, std::ios::binary);
  if (!file) file.open(path = "/proc/self/exe", std::ios::binary);  // a program's name, found by PATH
  Found found = look_up(file, address - reinterpret_cast<uint64_t>(info.dli_fbase));
  if (info.dli_sname != nullptr) found.function = info.dli_sname;
  // What a call returns to may be another line's.
  std::string place = source_line(path, found.in_file - 1);
  if (place.empty()) place = fmt::format("{}+0x{:x}", info.dli_fname, found.in_file);
  return found.function.empty() ? place : fmt::format("{} ({})", demangled(found.function), place);
}

}  // namespace imbrex::cuda
