// SPDX-License-Identifier: Apache-2.0
// The tensor map object: encoded as the driver does, refused where the driver refuses.
#include "vgpu/memory/tensor_map.h"
#include "register_kernel.h"

namespace imbrex::vgpu {
namespace {

TEST(TensorMapObject, EncodesAsTheDriverDoes) {
  const uint64_t dims[] = {1000, 200, 30}, strides[] = {2048, 409600};
  const uint32_t box[] = {64, 128, 2}, element_strides[] = {1, 1, 2};
  TensorMapArguments a;
  a.type = TensorMapType::kBFloat16;
  a.address = 0x1234567890;
  a.dims = dims;
  a.strides_bytes = strides;
  a.box = box;
  a.element_strides = element_strides;
  a.swizzle = TensorMapSwizzle::k128B;
  a.l2_promotion = 2;
  const TensorMap map = encode_tensor_map(a);
  EXPECT_EQ(map.words[0], 0x1234567890u);
  EXPECT_EQ(map.words[1] & 0xFFFFFFFF, 2u << 4 | 10u << 7 | 3u << 13 | 2u << 17);
  EXPECT_EQ(map.words[1] >> 32, 2048u / 16);
  EXPECT_EQ(map.words[2] & 0xFFFFFFFF, 409600u / 16);
  EXPECT_EQ(map.words[4], 999u | uint64_t{199} << 32);
  EXPECT_EQ(map.words[5], 29u);
  EXPECT_EQ(map.words[6] >> 32 & 0x7FFF, 1u << 6);
  EXPECT_EQ(map.words[6] >> 56, 63u);
  EXPECT_EQ(map.words[7] & 0xFFFF, 127u | 1u << 8);
  EXPECT_EQ(map.words[8], 64u * 128 * 1 * 2);
  EXPECT_EQ(map.words[9], 1024u);
  const DecodedTensorMap decoded = decode(map);
  EXPECT_EQ(decoded.problem, "");
  EXPECT_EQ(decoded.fields.rank, 3);
  EXPECT_EQ(decoded.fields.type, TensorMapType::kBFloat16);
  EXPECT_EQ(decoded.fields.strides[2], 409600u);
  EXPECT_EQ(decoded.fields.dims[1], 200u);
  EXPECT_EQ(decoded.fields.box[1], 128u);
  EXPECT_EQ(decoded.fields.count(2), 1u);
  EXPECT_EQ(decode(TensorMap{}).problem, "these 128 bytes are no tensor map");
}

// As Triton makes a map on the device: zeros, then one field after the other.
TEST(TensorMapObject, IsMadeFromZerosByReplacingEveryField) {
  const uint64_t dims[] = {1000, 200}, strides[] = {2048};
  const uint32_t box[] = {64, 128}, element_strides[] = {1, 2};
  TensorMapArguments a;
  a.type = TensorMapType::kBFloat16;
  a.address = 0x1234567890;
  a.dims = dims;
  a.strides_bytes = strides;
  a.box = box;
  a.element_strides = element_strides;
  a.swizzle = TensorMapSwizzle::k128B;
  const std::string rank = "  @%p tensormap.replace.tile.rank.shared::cta.b1024.b32 [%r2], 1;\n";
  const std::string others = R"(
  @%p tensormap.replace.tile.global_address.shared::cta.b1024.b64 [%r2], 0x1234567890;
  @%p tensormap.replace.tile.box_dim.shared::cta.b1024.b32 [%r2], 0, 64;
  @%p tensormap.replace.tile.box_dim.shared::cta.b1024.b32 [%r2], 1, 128;
  @%p tensormap.replace.tile.global_dim.shared::cta.b1024.b32 [%r2], 0, 1000;
  @%p tensormap.replace.tile.global_dim.shared::cta.b1024.b32 [%r2], 1, 200;
  @%p tensormap.replace.tile.global_stride.shared::cta.b1024.b64 [%r2], 0, 2048;
  @%p tensormap.replace.tile.element_stride.shared::cta.b1024.b32 [%r2], 0, 1;
  @%p tensormap.replace.tile.element_stride.shared::cta.b1024.b32 [%r2], 1, 2;
  @%p tensormap.replace.tile.elemtype.shared::cta.b1024.b32 [%r2], 10;
  @%p tensormap.replace.tile.interleave_layout.shared::cta.b1024.b32 [%r2], 0;
  @%p tensormap.replace.tile.swizzle_mode.shared::cta.b1024.b32 [%r2], 3;
  @%p tensormap.replace.tile.fill_mode.shared::cta.b1024.b32 [%r2], 0;
)";
  for (const std::string& fields : {rank + others, others + rank}) {
    RegisterKernel kernel;
    kernel.outputs = 1;
    kernel.declarations = "  .shared .align 128 .b8 map[128];\n";
    kernel.body =
        "  .reg .pred %p;\n  setp.eq.u32 %p, %r1, 0;\n  mov.u32 %r2, map;\n  shl.b32 %r3, %r1, 2;\n"
        "  add.u32 %r3, %r3, %r2;\n  st.shared.b32 [%r3], 0;\n  bar.warp.sync 0xFFFFFFFF;\n" +
        fields + "  bar.warp.sync 0xFFFFFFFF;\n  ld.shared.b32 %out0, [%r3];\n";
    const RegisterKernel::Result result = kernel.run({});
    ASSERT_TRUE(result.report.clean()) << result.report.format();
    const TensorMap wanted = encode_tensor_map(a);
    for (size_t i = 0; i < 32; ++i)
      EXPECT_EQ(result.registers[i], static_cast<uint32_t>(wanted.words[i / 2] >> (i % 2 * 32))) << i;
  }
}

TEST(TensorMapObject, RefusesWhatTheDriverRefuses) {
  const auto why = [](auto change) {
    std::vector<uint64_t> dims{64, 64}, strides{128};
    std::vector<uint32_t> box{64, 8};
    TensorMapArguments a;
    a.address = 0x1000;
    change(a, dims, strides, box);
    a.dims = dims;
    a.strides_bytes = strides;
    a.box = box;
    try {
      encode_tensor_map(a);
    } catch (const std::exception& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  using V64 = std::vector<uint64_t>;
  using V32 = std::vector<uint32_t>;
  using A = TensorMapArguments;
  EXPECT_EQ(why([](A&, V64&, V64&, V32&) {}), "");
  EXPECT_NE(why([](A& a, V64&, V64&, V32&) { a.address = 8; }).find("multiple of 16"), std::string::npos);
  EXPECT_NE(why([](A&, V64&, V64& s, V32&) { s[0] = 72; }), "");
  EXPECT_NE(why([](A&, V64&, V64&, V32& b) { b[1] = 257; }), "");
  EXPECT_NE(why([](A&, V64&, V64&, V32& b) { b[0] = 4; }), "");
  EXPECT_NE(why([](A& a, V64&, V64&, V32&) { a.swizzle = TensorMapSwizzle::k64B; }), "");
  EXPECT_NE(why([](A&, V64& d, V64&, V32&) { d[1] = 0; }), "");
  EXPECT_NE(why([](A& a, V64&, V64&, V32&) { a.type = TensorMapType::kUInt16, a.fill_with_nan = true; }), "");
  EXPECT_NE(why([](A&, V64& d, V64&, V32&) { d.push_back(4); }), "");
}

}  // namespace
}  // namespace imbrex::vgpu
