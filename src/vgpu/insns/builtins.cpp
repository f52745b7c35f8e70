// SPDX-License-Identifier: Apache-2.0
#include "vgpu/insns/builtins.h"

#include <fmt/format.h>

#include <cstdio>

#include "vgpu/insns/heap_functions.h"
#include "vgpu/machine/access.h"
#include "vgpu/program/device_runtime.h"

namespace imbrex::vgpu {

namespace {

constexpr size_t kLongestString = 64 << 10;

/// The zero-terminated string at a generic address. False when it leads out of memory (which is reported).
bool read_string(Cluster& cluster, const Who& who, uint64_t address, std::string& out) {
  for (; out.size() < kLongestString; ++address) {
    Place place;
    if (!locate(cluster, who, Space::kGeneric, address, 1, 1, AccessKind::kRead, place)) return false;
    const char c = static_cast<char>(*place.host);
    if (c == 0) return true;
    out.push_back(c);
  }
  return true;
}

/// The arguments of one printf call, laid out as CUDA does it: each aligned to its size.
class PrintfArguments {
 public:
  PrintfArguments(Cluster& cluster, const Who& who, uint64_t address)
      : cluster_(cluster), who_(who), begin_(address), next_(address) {}
  template <class T>
  bool next(T& value) {
    next_ = begin_ + (next_ - begin_ + sizeof(T) - 1) / sizeof(T) * sizeof(T);
    Place place;
    if (!locate(cluster_, who_, Space::kGeneric, next_, sizeof(T), 1, AccessKind::kRead, place)) return false;
    std::memcpy(&value, place.host, sizeof(T));
    next_ += sizeof(T);
    return true;
  }

 private:
  Cluster& cluster_;
  Who who_;
  uint64_t begin_, next_;
};

template <class T>
std::string print_one(const std::string& spec, T value) {
  char buffer[512];
  // The specification was taken apart below: one conversion, of the type given.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
#pragma GCC diagnostic ignored "-Wformat-security"
  const int length = std::snprintf(buffer, sizeof buffer, spec.c_str(), value);
#pragma GCC diagnostic pop
  return length > 0 ? std::string(buffer, std::min<size_t>(static_cast<size_t>(length), sizeof buffer - 1))
                    : "";
}

bool print_conversion(Cluster& cluster, const Who& who, PrintfArguments& arguments, std::string spec,
                      std::string& out) {
  const char conversion = spec.back();
  const bool wide = spec.find('l') != std::string::npos || spec.find('z') != std::string::npos ||
                    spec.find('j') != std::string::npos || spec.find('t') != std::string::npos;
  switch (conversion) {
    case 'c': {
      int value = 0;
      if (!arguments.next(value)) return false;
      out += print_one(spec, value);
      return true;
    }
    case 'd':
    case 'i':
    case 'u':
    case 'x':
    case 'X':
    case 'o': {
      if (wide) {
        long long value = 0;
        if (!arguments.next(value)) return false;
        std::erase_if(spec, [](char c) { return c == 'l' || c == 'z' || c == 'j' || c == 't'; });
        spec.insert(spec.size() - 1, "ll");
        out += print_one(spec, value);
      } else {
        int value = 0;
        if (!arguments.next(value)) return false;
        out += print_one(spec, value);
      }
      return true;
    }
    case 'p': {
      uint64_t value = 0;
      if (!arguments.next(value)) return false;
      out += fmt::format("0x{:x}", value);
      return true;
    }
    case 's': {
      uint64_t address = 0;
      std::string text;
      if (!arguments.next(address) || !read_string(cluster, who, address, text)) return false;
      out += print_one(spec, text.c_str());
      return true;
    }
    default: {
      double value = 0;
      if (!arguments.next(value)) return false;
      out += print_one(spec, value);
      return true;
    }
  }
}

void print(Cluster& cluster, const Who& who, uint64_t format_address, uint64_t argument_address) {
  std::string format;
  if (!read_string(cluster, who, format_address, format)) return;
  PrintfArguments arguments(cluster, who, argument_address);
  std::string out;
  for (size_t i = 0; i < format.size(); ++i) {
    if (format[i] != '%') {
      out.push_back(format[i]);
      continue;
    }
    if (i + 1 < format.size() && format[i + 1] == '%') {
      out.push_back('%');
      ++i;
      continue;
    }
    const size_t end = format.find_first_of("cdiuxXopsfFeEgGaA", i + 1);
    if (end == std::string::npos) break;
    std::string spec = format.substr(i, end - i + 1);
    i = end;
    bool good = true;
    for (size_t star = spec.find('*'); good && star != std::string::npos; star = spec.find('*')) {
      int width = 0;
      good = arguments.next(width);
      spec.replace(star, 1, std::to_string(width));
    }
    if (!good || !print_conversion(cluster, who, arguments, spec, out)) break;
  }
  cluster.printed() += out;
}

Step vprintf_builtin(Warp& w, const Instruction& n, Mask active, const std::vector<int64_t>& arguments,
                     const std::vector<int64_t>& results) {
  Cluster& cluster = w.cta().cluster();
  for_each_lane(active, [&](int lane) {
    const Who who = w.thread(n, lane);
    print(cluster, who, argument<uint64_t>(w, lane, arguments[0]), argument<uint64_t>(w, lane, arguments[1]));
    if (!results.empty()) set_result<int32_t>(w, lane, results[0], 0);
  });
  return Step::kNext;
}

Step assertfail_builtin(Warp& w, const Instruction& n, Mask active, const std::vector<int64_t>& arguments,
                        const std::vector<int64_t>&) {
  Cluster& cluster = w.cta().cluster();
  const int lane = first_lane(active);
  const Who who = w.thread(n, lane);
  std::string text, file;
  read_string(cluster, who, argument<uint64_t>(w, lane, arguments[0]), text);
  if (arguments.size() > 2) read_string(cluster, who, argument<uint64_t>(w, lane, arguments[1]), file);
  if (Finding* f = cluster.log().open(FindingKind::kTrap, who)) {
    f->message = fmt::format("assertion failed: {}", text);
    if (!file.empty())
      f->facts.push_back(fmt::format("asserted at {}:{}", file, argument<uint32_t>(w, lane, arguments[2])));
  }
  cluster.stop();
  return w.exit(active);
}

Step not_cooperative_builtin(Warp& w, const Instruction& n, Mask active, const std::vector<int64_t>&,
                             const std::vector<int64_t>&) {
  w.cta().cluster().report_fatal(FindingKind::kIllegalInstruction, w.thread(n, first_lane(active)), 0,
                                 "synchronises its grid, but the launch is not cooperative",
                                 "launch it by cudaLaunchCooperativeKernel, or with the attribute "
                                 "cudaLaunchAttributeCooperative");
  return w.exit(active);
}

}  // namespace

Builtin find_builtin(std::string_view name) {
  if (name == "vprintf") return vprintf_builtin;
  if (name == "__assertfail") return assertfail_builtin;
  if (name == "malloc") return malloc_builtin;
  if (name == "free") return free_builtin;
  if (name == kNotCooperative) return not_cooperative_builtin;
  return nullptr;
}

}  // namespace imbrex::vgpu
