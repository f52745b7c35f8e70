// SPDX-License-Identifier: Apache-2.0
// Single memory instructions of one warp, each a launch, whose requests and sectors are known: run on a CUDA GPU
// under ncu they tell whether the chip counts as we do, on the virtual GPU whether its counters do.
//
//   sector_probe --virtual       compares the virtual GPU's counters with sector_report()
//   sector_probe --run           launches every access on the CUDA GPU, for ncu to count
//   sector_probe --join CSV      compares what ncu counted (--csv --page raw); prints the accesses with the chip's
//                                counts, in the form of tests/analysis/data
//
// tests/analysis/sectors_on_gpu does the last two.
#include <fmt/format.h>

#include <cstring>
#include <fstream>
#include <map>
#include <random>
#include <sstream>

#include "codegen/compiled_kernel.h"
#include "imbrex/core/error.h"
#include "imbrex/inspect/sectors.h"
#include "imbrex/runtime/device_tensor.h"
#include "runtime/device/backend.h"

namespace imbrex {
namespace {

/// An instruction: its name here, its PTX, bytes per lane, and what ncu calls it.
struct Form {
  std::string name, ptx;
  int bytes;
  const char* ncu;
};

const std::vector<Form>& forms() {
  // The loads' results are compared with a number that memory does not hold but a byte could, so that none is dead.
  const auto load = [](const std::string& type, const std::string& value, const std::string& uses) {
    return fmt::format(
        "ld.global.{} {}, [%a];\n{}  setp.eq.u32 %q, %x0, 0x5e;\n  @%q st.global.u32 [%d], %x0;", type, value,
        uses);
  };
  const std::string two = "  xor.b32 %x0, %x0, %x1;\n",
                    four = two + "  xor.b32 %x0, %x0, %x2;\n  xor.b32 %x0, %x0, %x3;\n";
  const std::string pair = "{%x0, %x1}", quad = "{%x0, %x1, %x2, %x3}";
  const auto copy = [](int bytes) {
    return fmt::format("cp.async.ca.shared.global [%s], [%a], {};\n  cp.async.wait_all;", bytes);
  };
  static const std::vector<Form> all = {
      {"ld1", load("u8", "%x0", ""), 1, "op_ld"},
      {"ld2", load("u16", "%h", "  cvt.u32.u16 %x0, %h;\n"), 2, "op_ld"},
      {"ld4", load("u32", "%x0", ""), 4, "op_ld"},
      {"ld8", load("v2.u32", pair, two), 8, "op_ld"},
      {"ld16", load("v4.u32", quad, four), 16, "op_ld"},
      {"st1", "st.global.u8 [%a], %t;", 1, "op_st"},
      {"st2", "cvt.u16.u32 %h, %t;\n  st.global.u16 [%a], %h;", 2, "op_st"},
      {"st4", "st.global.u32 [%a], %t;", 4, "op_st"},
      {"st8", "st.global.v2.u32 [%a], {%t, %t};", 8, "op_st"},
      {"st16", "st.global.v4.u32 [%a], {%t, %t, %t, %t};", 16, "op_st"},
      {"atom4",
       "atom.global.add.u32 %x0, [%a], %t;\n  setp.eq.u32 %q, %x0, 0x5eed1234;\n  @%q st.global.u32 [%d], "
       "%x0;",
       4, "op_atom"},
      {"red4", "red.global.add.u32 [%a], %t;", 4, "op_red"},
      {"cp4", copy(4), 4, "op_ldgsts"},
      {"cp8", copy(8), 8, "op_ldgsts"},
      {"cp16", copy(16), 16, "op_ldgsts"},
  };
  return all;
}

/// Lane i accesses the byte offsets[i] of `data`, or nothing where that is negative.
std::string ptx_of(const Form& form) {
  return fmt::format(R"(.version 8.0
.target sm_80
.address_size 64
.visible .entry {}(.param .align 4 .b8 offsets[128], .param .u64 data)
.maxntid 32
{{
  .reg .pred %p, %q;
  .reg .b16 %h;
  .reg .b32 %t, %o, %s, %x<4>;
  .reg .b64 %a, %d, %w;
  .shared .align 16 .b8 tile[512];
  mov.u32 %t, %tid.x;
  mul.wide.u32 %w, %t, 4;
  mov.b64 %a, offsets;
  add.u64 %a, %a, %w;
  ld.param.s32 %o, [%a];
  ld.param.u64 %d, [data];
  mov.u32 %s, tile;
  mad.lo.u32 %s, %t, 16, %s;
  setp.lt.s32 %p, %o, 0;
  @%p bra END;
  cvt.u64.u32 %a, %o;
  add.u64 %a, %a, %d;
  {}
END:
  ret;
}}
)",
                     form.name, form.ptx);
}

constexpr int64_t kDataBytes = 1 << 20;

struct Access {
  const Form* form;
  std::vector<int64_t> offsets;

  SectorReport report() const {
    const bool by_turns = form->name.starts_with("atom") || form->name.starts_with("red");
    return sector_report({.addresses = offsets, .bytes = form->bytes},
                         by_turns ? SectorSharing::kByTurns : SectorSharing::kTogether);
  }
  std::string text() const {
    std::string out;
    for (const int64_t offset : offsets) out += fmt::format(" {}", offset);
    return out;
  }
};

/// Strides, starts, masks, broadcasts and random addresses of every form: always the same ones.
std::vector<Access> accesses() {
  std::vector<Access> all;
  std::mt19937_64 random(20261122);
  for (const Form& form : forms()) {
    const auto add = [&](auto offset_of_lane) {
      Access access{&form, {}};
      for (int64_t lane = 0; lane < 32; ++lane) access.offsets.push_back(offset_of_lane(lane));
      all.push_back(std::move(access));
    };
    const int64_t bytes = form.bytes;
    for (const int64_t stride : {0, 1, 2, 3, 4, 5, 7, 8, 9, 16, 17, 31, 32, 33})
      add([&](int64_t lane) { return lane * stride * bytes; });
    for (const int64_t start : {1, 2, 3, 4, 5, 8, 12, 24, 31})  // of the first lane, in elements
      add([&](int64_t lane) { return (start + lane) * bytes; });
    for (const int64_t lanes : {1, 2, 3, 7, 8, 16, 31})
      add([&](int64_t lane) { return lane < lanes ? lane * bytes : -1; });
    add([&](int64_t lane) { return lane % 2 == 0 ? lane * bytes : -1; });
    add([&](int64_t lane) { return (31 - lane) * bytes; });
    for (const int64_t group : {2, 4, 8, 16})  // as many lanes want the same
      add([&](int64_t lane) { return lane / group * bytes; });
    for (const int64_t group : {2, 4, 8, 16})  // what lanes of different quarters want is the same
      add([&](int64_t lane) { return lane % group * bytes; });
    for (int i = 0; i < 8; ++i) {
      const int64_t spread = int64_t{16} << 2 * (i % 4);
      add([&](int64_t) {
        return random() % 5 == 0 ? -1
                                 : static_cast<int64_t>(random() % static_cast<uint64_t>(spread)) * bytes;
      });
    }
  }
  std::erase_if(all, [](const Access& access) { return access.report().lanes == 0; });
  return all;
}

codegen::CompiledKernel kernel_of(const Form& form) {
  codegen::CompiledKernel kernel;
  kernel.name = form.name;
  kernel.target = "sm_80";
  kernel.ptx = ptx_of(form);
  kernel.threads = 32;
  kernel.params = {{.kind = codegen::ParamPlan::Kind::kUser, .index = 0, .offset = 0, .bytes = 128},
                   {.kind = codegen::ParamPlan::Kind::kUser, .index = 1, .offset = 128, .bytes = 8}};
  kernel.param_bytes = 136;
  return kernel;
}

/// Launches every access in order; `launched` gets what each told.
template <class F>
void launch_all(const Device& device, const F& launched) {
  const DeviceTensor data = DeviceTensor::empty(device, uint8, {kDataBytes});
  device.backend().fill(data.address(), 0, kDataBytes);
  std::map<const Form*, std::shared_ptr<runtime::LoadedKernel>> kernels;
  for (const Access& access : accesses()) {
    std::shared_ptr<runtime::LoadedKernel>& kernel = kernels[access.form];
    if (!kernel) kernel = device.backend().load(kernel_of(*access.form));
    std::vector<std::byte> parameters(136);
    for (size_t lane = 0; lane < 32; ++lane) {
      const auto offset = static_cast<int32_t>(access.offsets[lane]);
      std::memcpy(&parameters[4 * lane], &offset, 4);
    }
    const uint64_t address = data.address();
    std::memcpy(&parameters[128], &address, 8);
    runtime::LaunchPlan plan;
    plan.params = parameters;
    plan.stream = device.backend().stream();
    launched(access, device.backend().launch(*kernel, plan));
    device.synchronize();
  }
}

int run_virtual() {
  vgpu::Options options;
  options.target = "sm_80";
  options.count_sectors = true;
  int wrong = 0, compared = 0;
  launch_all(Device::virtual_gpu(options), [&](const Access& access, const LaunchReport& launch) {
    const SectorReport expected = access.report();
    int64_t requests = 0, sectors = 0, ideal = 0, bytes = 0;
    for (const vgpu::SectorUse& use : launch.virtual_report.sectors)
      requests += use.requests, sectors += use.sectors, ideal += use.ideal, bytes += use.bytes_asked;
    ++compared;
    if (requests == 1 && sectors == expected.sectors && ideal == expected.ideal && bytes == expected.bytes)
      return;
    ++wrong;
    fmt::print("{}{}: {} requests, {} sectors, {} ideal, {} bytes; expected 1, {}, {}, {}\n",
               access.form->name, access.text(), requests, sectors, ideal, bytes, expected.sectors,
               expected.ideal, expected.bytes);
  });
  fmt::print("{} accesses on the virtual GPU, {} counted wrongly\n", compared, wrong);
  return wrong == 0 && compared > 500 ? 0 : 1;
}

/// The fields of one line, "a","b","1,234", without the commas that part thousands.
std::vector<std::string> fields_of(const std::string& line) {
  std::vector<std::string> fields(1);
  bool quoted = false;
  for (const char c : line) {
    if (c == '"')
      quoted = !quoted;
    else if (c == ',' && !quoted)
      fields.emplace_back();
    else if (c != ',')
      fields.back() += c;
  }
  return fields;
}

int join(const std::string& file) {
  std::ifstream in(file);
  std::vector<std::vector<std::string>> rows;  // the header, the units, then one for each launch
  for (std::string line; std::getline(in, line);)
    if (line.starts_with('"')) rows.push_back(fields_of(line));
  const std::vector<Access> all = accesses();
  if (rows.size() != all.size() + 2) {
    fmt::print(stderr, "{}: {} launches, expected {}\n", file, rows.size() < 2 ? 0 : rows.size() - 2,
               all.size());
    return 2;
  }
  int different = 0;
  for (size_t i = 0; i < all.size(); ++i) {
    const Access& access = all[i];
    bool counted = false;
    int64_t requests = 0, sectors = 0;
    for (size_t column = 0; column < rows[0].size() && column < rows[i + 2].size(); ++column) {
      const std::string& name = rows[0][column];
      const size_t at = name.find(access.form->ncu);
      if (at == std::string::npos) continue;
      // "op_ld" is a beginning of "op_ldgsts".
      const char next =
          at + std::strlen(access.form->ncu) < name.size() ? name[at + std::strlen(access.form->ncu)] : '.';
      if (next != '.' && next != '_') continue;
      // ncu adds the largest, the smallest and the average unit's to the .sum that was asked for; hits and misses
      // are parts of a count that stands beside them.
      if (!name.ends_with(".sum") || name.find("_lookup_") != std::string::npos) continue;
      counted = true;
      const int64_t value = std::atoll(rows[i + 2][column].c_str());
      if (name.find("t_requests") != std::string::npos) requests += value;
      if (name.find("t_sectors") != std::string::npos) sectors += value;
    }
    if (!counted) continue;  // ncu has no such metric for this chip
    fmt::print("{} {} {}{}\n", access.form->name, requests, sectors, access.text());
    if (requests == 1 && sectors == access.report().sectors) continue;
    ++different;
    fmt::print(stderr, "{}{}: the chip counts {} requests and {} sectors, we 1 and {}\n", access.form->name,
               access.text(), requests, sectors, access.report().sectors);
  }
  fmt::print(stderr, "{} accesses, {} of which the chip counts otherwise\n", all.size(), different);
  return different == 0 ? 0 : 1;
}

int main_of(const std::vector<std::string>& words) {
  if (words.size() == 1 && words[0] == "--virtual") return run_virtual();
  if (words.size() == 1 && words[0] == "--run") {
    launch_all(Device::cuda(), [](const Access&, const LaunchReport&) {});
    return 0;
  }
  if (words.size() == 2 && words[0] == "--join") return join(words[1]);
  fmt::print(stderr, "usage: sector_probe --virtual | --run | --join CSV\n");
  return 2;
}

}  // namespace
}  // namespace imbrex

int main(int argc, char** argv) {
  try {
    return imbrex::main_of({argv + 1, argv + argc});
  } catch (const imbrex::Error& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 2;
  }
}
