// SPDX-License-Identifier: Apache-2.0
// A micro-kernel: a few PTX instructions around the one that is tried, its input, and how much it writes.
// Both devices run the same text on the same bytes; what they write is compared.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace imbrex::conformance {

/// A tensor map a kernel is passed, by value, after its two pointers. Numbers are the driver's.
struct MapSpec {
  bool is_on_output = false;  // its tensor lies in the output instead of the input
  int64_t offset = 0;         // of the tensor, in bytes
  int type = 1;               // CUtensorMapDataType; 1 is uint16
  std::vector<uint64_t> dims;
  std::vector<uint64_t> strides_bytes;  // of dimensions 1 ...
  std::vector<uint32_t> box, element_strides;
  int swizzle = 0;
  bool fills_with_nan = false;
  // im2col maps: box[0] counts channels.
  uint32_t pixels = 0;
  std::vector<int32_t> lower_corner = {}, upper_corner = {};
};

struct MicroKernel {
  std::string family;
  std::string name;  // one in its family
  std::string ptx;   // entry `form(.param .u64 in, .param .u64 out, maps ...)`
  std::vector<uint8_t> input;
  int64_t output_bytes = 0;
  int ctas = 1, cluster = 1, threads = 32;
  std::vector<MapSpec> maps = {};
};

/// Output bytes hold this before a kernel runs.
inline constexpr uint8_t kPoison = 0xA5;

/// Numbers that depend on nothing but a name.
class Random {
 public:
  explicit Random(std::string_view name);
  uint64_t next();
  /// 0 ... bound - 1
  uint64_t below(uint64_t bound) { return next() % bound; }

 private:
  uint64_t state_;
};

/// Pieces of PTX for a kernel of one family: what is the same in all of them. A body may use
///   %in %out (b64)         this thread's part of the input and of the output
///   %ginput %goutput (b64) the whole of them
///   %thread %lane %warp %cta (b32)
///   %tile %bar (b32)       shared memory of `tile_bytes`, aligned to 1024, and eight barriers
///   %p<32> %h<64> %r<400> %rd<80>
///   map0, map1 ...         addresses of its tensor maps: %map0 ... (b64)
struct Frame {
  int threads = 32, ctas = 1, cluster = 1;
  int tile_bytes = 0;
  int in_stride = 0, out_stride = 0;  // bytes a thread
  int maps = 0;
  std::string directives = {};  // after .reqntid
  std::string body = {};

  std::string ptx() const;
  int64_t thread_count() const { return int64_t{threads} * ctas; }
};

/// All threads copy the CTA's part of the input, `bytes` of it, into the tile (or the tile to the output).
/// Registers %r390 ... and %rd70 ... are theirs. No barrier is included.
std::string fill_tile(const Frame& frame, int bytes, int64_t input_offset = 0);
std::string dump_tile(const Frame& frame, int bytes, int64_t output_offset = 0);

/// 64 threads copy `bytes` of the input, from `input_offset` on, to the output (what a store is to change); then the
/// writes so far are ordered before asynchronous ones, and only thread 0 goes on: the others jump to `done`.
std::string copy_input_to_output(int64_t input_offset, int64_t bytes);

/// Waits for the phase of `parity` of the barrier at `address`; gives up (with the output left poisoned)
/// after many tries. `label` makes the text's labels unique.
std::string wait_parity(const std::string& address, int parity, const std::string& label);

/// `{%r4,%r5,%r6}`
std::string registers(int first, int count, std::string_view prefix = "%r");
/// ld.global of `count` 32-bit registers from %in + offset, and the inverse.
std::string load_registers(int first, int count, int offset = 0);
std::string store_registers(int first, int count, int offset = 0);

/// The kernel of a frame; the input must have the bytes its threads read.
MicroKernel make_kernel(std::string family, std::string name, const Frame& frame, std::vector<uint8_t> input,
                        int64_t output_bytes = 0);

std::vector<uint8_t> random_bytes(int64_t count, Random& random);

/// Patterns of an element type, `bits` wide, that try matrix arithmetic. A profile decides the exponents.
enum class Profile : uint8_t {
  kNearOne,
  kWide,        // every exponent
  kTiny,        // mostly subnormal
  kZeros,       // most are zero
  kHuge,        // sums overflow
  kSpecial,     // some NaN and infinity
  kCancelling,  // large terms cancel
  kAnyBits,
  kNans,  // half of them NaN, quiet and signalling; not one of those every form goes through
};
inline constexpr int kProfiles = 8;
/// One value of type "f16", "bf16", "tf32", "f32", "f64", "e4m3", "e5m2", "s32", or any other: raw bits.
uint64_t draw(std::string_view type, Profile profile, Random& random);
int bits_of_type(std::string_view type);
/// `count` values packed one after the other from the lowest bit.
void append_values(std::vector<uint8_t>& bytes, std::string_view type, Profile profile, int64_t count,
                   Random& random);

}  // namespace imbrex::conformance
