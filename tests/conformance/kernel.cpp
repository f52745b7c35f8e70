// SPDX-License-Identifier: Apache-2.0
#include "kernel.h"

#include <fmt/format.h>

#include <algorithm>

namespace imbrex::conformance {

Random::Random(std::string_view name) : state_(0xCBF29CE484222325u) {
  for (char c : name) state_ = (state_ ^ static_cast<uint8_t>(c)) * 0x100000001B3u;
  if (state_ == 0) state_ = 1;
  for (int i = 0; i < 4; ++i) next();
}

uint64_t Random::next() {
  state_ ^= state_ << 13, state_ ^= state_ >> 7, state_ ^= state_ << 17;
  const uint64_t product = state_ * 0x2545F4914F6CDD1Du;
  return product ^ product >> 32;
}

std::vector<uint8_t> random_bytes(int64_t count, Random& random) {
  std::vector<uint8_t> bytes(static_cast<size_t>(count));
  for (uint8_t& b : bytes) b = static_cast<uint8_t>(random.next() >> 8);
  return bytes;
}

std::string Frame::ptx() const {
  std::string parameters = ".param .u64 in, .param .u64 out", maps_text;
  for (int m = 0; m < maps; ++m) {
    parameters += fmt::format(", .param .align 64 .b8 map{}[128]", m);
    maps_text += fmt::format(
        "  .reg .b64 %map{0};\n  mov.b64 %map{0}, map{0};\n  cvta.param.u64 %map{0}, %map{0};\n", m);
  }
  const std::string tile = tile_bytes == 0 ? ""
                                           : fmt::format(
                                                 "  .shared .align 1024 .b8 tile[{}];\n"
                                                 "  .shared .align 8 .b64 barriers[8];\n",
                                                 tile_bytes);
  return fmt::format(R"(.version 9.0
.target sm_90a
.address_size 64
.visible .entry form({})
.reqntid {}
{}{{
  .reg .pred %p<32>;
  .reg .b16 %h<64>;
  .reg .b32 %r<400>, %thread, %lane, %warp, %cta, %tile, %bar;
  .reg .b64 %rd<80>, %in, %out, %ginput, %goutput;
{}{}  ld.param.u64 %ginput, [in];
  ld.param.u64 %goutput, [out];
  mov.u32 %thread, %tid.x;
  mov.u32 %lane, %laneid;
  mov.u32 %cta, %ctaid.x;
  shr.u32 %warp, %thread, 5;
  mad.lo.u32 %r399, %cta, {}, %thread;
  mad.wide.u32 %in, %r399, {}, %ginput;
  mad.wide.u32 %out, %r399, {}, %goutput;
{}{}  ret;
}}
)",
                     parameters, threads, directives, tile, maps_text, threads, in_stride, out_stride,
                     tile_bytes == 0 ? "" : "  mov.u32 %tile, tile;\n  mov.u32 %bar, barriers;\n", body);
}

namespace {
std::string copy_tile(const Frame& frame, int bytes, int64_t offset, bool is_fill) {
  const std::string label = is_fill ? "fill" : "dump";
  return fmt::format(R"(  shl.b32 %r390, %thread, 2;
  mad.wide.u32 %rd70, %cta, {0}, {1};
  add.u64 %rd70, %rd70, {2};
{3}_{2}:
  setp.ge.u32 %p31, %r390, {0};
  @%p31 bra {3}_{2}_done;
  cvt.u64.u32 %rd71, %r390;
  add.u64 %rd71, %rd71, %rd70;
  add.u32 %r391, %r390, %tile;
{4}  add.u32 %r390, %r390, {5};
  bra {3}_{2};
{3}_{2}_done:
)",
                     bytes, is_fill ? "%ginput" : "%goutput", offset, label,
                     is_fill ? "  ld.global.b32 %r392, [%rd71];\n  st.shared.b32 [%r391], %r392;\n"
                             : "  ld.shared.b32 %r392, [%r391];\n  st.global.b32 [%rd71], %r392;\n",
                     4 * frame.threads);
}
}  // namespace

std::string fill_tile(const Frame& frame, int bytes, int64_t input_offset) {
  return copy_tile(frame, bytes, input_offset, true);
}
std::string dump_tile(const Frame& frame, int bytes, int64_t output_offset) {
  return copy_tile(frame, bytes, output_offset, false);
}

std::string copy_input_to_output(int64_t input_offset, int64_t bytes) {
  return fmt::format(R"(  shl.b32 %r380, %thread, 2;
old:
  cvt.u64.u32 %rd60, %r380;
  add.u64 %rd61, %rd60, %ginput;
  ld.global.b32 %r381, [%rd61+{0}];
  add.u64 %rd61, %rd60, %goutput;
  st.global.b32 [%rd61], %r381;
  add.u32 %r380, %r380, 256;
  setp.lt.u32 %p29, %r380, {1};
  @%p29 bra old;
  fence.proxy.async;
  bar.sync 0;
  setp.ne.u32 %p0, %thread, 0;
  @%p0 bra done;
)",
                     input_offset, bytes);
}

std::string wait_parity(const std::string& address, int parity, const std::string& label) {
  return fmt::format(R"(  mov.u32 %r389, 0;
{0}:
  mbarrier.try_wait.parity.shared::cta.b64 %p30, [{1}], {2};
  @%p30 bra {0}_done;
  add.u32 %r389, %r389, 1;
  setp.gt.u32 %p30, %r389, 100000;
  @%p30 trap;
  bra {0};
{0}_done:
)",
                     label, address, parity);
}

std::string registers(int first, int count, std::string_view prefix) {
  std::string text = "{";
  for (int i = 0; i < count; ++i) text += fmt::format("{}{}{}", i == 0 ? "" : ",", prefix, first + i);
  return text + "}";
}

std::string load_registers(int first, int count, int offset) {
  std::string text;
  for (int i = 0; i < count; ++i)
    text += fmt::format("  ld.global.b32 %r{}, [%in+{}];\n", first + i, offset + 4 * i);
  return text;
}
std::string store_registers(int first, int count, int offset) {
  std::string text;
  for (int i = 0; i < count; ++i)
    text += fmt::format("  st.global.b32 [%out+{}], %r{};\n", offset + 4 * i, first + i);
  return text;
}

MicroKernel make_kernel(std::string family, std::string name, const Frame& frame, std::vector<uint8_t> input,
                        int64_t output_bytes) {
  MicroKernel kernel;
  kernel.family = std::move(family);
  kernel.name = std::move(name);
  kernel.ptx = frame.ptx();
  kernel.input = std::move(input);
  if (kernel.input.empty()) kernel.input.resize(16);
  kernel.output_bytes = output_bytes != 0 ? output_bytes : frame.thread_count() * frame.out_stride;
  kernel.ctas = frame.ctas, kernel.cluster = frame.cluster, kernel.threads = frame.threads;
  return kernel;
}

// Values ----------------------------------------------------------------------------------------------------

int bits_of_type(std::string_view type) {
  if (type == "f64") return 64;
  if (type == "f32" || type == "tf32" || type == "s32" || type == "b32") return 32;
  if (type == "f16" || type == "bf16") return 16;
  if (type == "s4" || type == "u4") return 4;
  if (type == "b1") return 1;
  return 8;
}

namespace {
struct Format {
  int exponent, fraction, bias;
  bool has_infinity;
};
Format format_of(std::string_view type) {
  if (type == "f16") return {5, 10, 15, true};
  if (type == "bf16") return {8, 7, 127, true};
  if (type == "e4m3") return {4, 3, 7, false};
  if (type == "e5m2") return {5, 2, 15, true};
  if (type == "f64") return {11, 52, 1023, true};
  return {8, 23, 127, true};
}
bool is_float(std::string_view type) {
  return type == "f16" || type == "bf16" || type == "tf32" || type == "f32" || type == "f64" ||
         type == "e4m3" || type == "e5m2";
}
}  // namespace

uint64_t draw(std::string_view type, Profile profile, Random& random) {
  const int bits = bits_of_type(type);
  const uint64_t raw = random.next(), mask = bits == 64 ? ~uint64_t{0} : (uint64_t{1} << bits) - 1;
  if (!is_float(type)) {
    if (profile == Profile::kZeros && random.below(10) < 7) return 0;
    if (profile == Profile::kHuge && random.below(2) != 0) return (mask >> 1) + (raw & 1);
    if (profile == Profile::kTiny) return raw & 3;
    return raw & mask;
  }
  const Format f = format_of(type);
  const uint64_t top = (uint64_t{1} << f.exponent) - 1, fraction_mask = (uint64_t{1} << f.fraction) - 1;
  const uint64_t sign = raw >> 63, fraction = raw & fraction_mask;
  const auto make = [&](uint64_t exponent) {
    return (sign << (bits - 1) | exponent << f.fraction | fraction) & mask;
  };
  const auto near = [&](int middle, int spread) {
    const int64_t e =
        f.bias + middle + static_cast<int64_t>(random.below(2 * static_cast<uint64_t>(spread) + 1)) - spread;
    return make(static_cast<uint64_t>(std::clamp<int64_t>(e, 0, static_cast<int64_t>(top) - 1)));
  };
  switch (profile) {
    case Profile::kNearOne:
      return near(0, std::min(3, f.bias));
    case Profile::kWide:
      return make(random.below(top));
    case Profile::kTiny:
      return random.below(4) == 0 ? near(0, f.bias) : make(random.below(3));
    case Profile::kZeros:
      return random.below(10) < 7 ? sign << (bits - 1) : near(0, f.bias / 2);
    case Profile::kHuge:
      return near(random.below(2) != 0 ? f.bias : f.bias / 2, 2);
    case Profile::kSpecial:
      if (random.below(24) == 0)
        return random.below(2) != 0 ? make(top) : (sign << (bits - 1) | top << f.fraction) & mask;
      return near(0, 6);
    case Profile::kCancelling: {
      // Few significands and exponents, so that products meet with both signs, and something small beside.
      const uint64_t few =
          (sign << (bits - 1) | static_cast<uint64_t>(f.bias + std::min(4, f.bias - 1)) << f.fraction) & mask;
      return random.below(4) != 0 ? few : near(-4, 3);
    }
    case Profile::kNans: {
      const uint64_t quiet = random.below(2) << (f.fraction - 1);
      const uint64_t payload = random.below(3) == 0 ? 1 : (fraction & (fraction_mask >> 1)) | 1;
      if (random.below(2) != 0) return (sign << (bits - 1) | top << f.fraction | quiet | payload) & mask;
      return random.below(3) == 0 ? (sign << (bits - 1) | top << f.fraction) & mask : near(0, 3);
    }
    default:
      return raw & mask;
  }
}

void append_values(std::vector<uint8_t>& bytes, std::string_view type, Profile profile, int64_t count,
                   Random& random) {
  const int bits = bits_of_type(type);
  uint64_t word = 0;
  int filled = 0;
  for (int64_t i = 0; i < count; ++i) {
    const uint64_t value = draw(type, profile, random);
    if (bits >= 8) {
      for (int b = 0; b < bits / 8; ++b) bytes.push_back(static_cast<uint8_t>(value >> 8 * b));
      continue;
    }
    word |= value << filled;
    filled += bits;
    if (filled == 8) bytes.push_back(static_cast<uint8_t>(word)), word = 0, filled = 0;
  }
}

}  // namespace imbrex::conformance
