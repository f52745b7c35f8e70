// SPDX-License-Identifier: Apache-2.0
// Element types. `float16`, `int32`, ... are values, so they can be arguments (`shared_tensor(float16, {64, 64})`)
// and template arguments (`Ptr<float16>`).
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace imbrex {

/// One element type. A structural type: usable as a template argument, compared with ==.
struct DataType {
  enum Code : uint8_t {
    kBool,
    kInt8,
    kInt16,
    kInt32,
    kInt64,
    kUInt8,
    kUInt16,
    kUInt32,
    kUInt64,
    kFloat16,
    kBFloat16,
    kTFloat32,
    kFloat32,
    kFloat64,
    kFloat8E4M3,
    kFloat8E5M2,
    kFloat6E2M3,
    kFloat6E3M2,
    kFloat4E2M1,
    kFloat8E8M0,   ///< powers of two without a sign: scale factors (ue8m0)
    kFloat8UE4M3,  ///< e4m3 without a sign: scale factors
    kCount,
  };
  Code code = kInt32;

  friend constexpr bool operator==(DataType, DataType) = default;

  /// Size of one element in memory, in bits (bool is stored as a byte).
  constexpr int bits() const;
  /// Size of one element in bytes; 0 for types smaller than a byte.
  constexpr int bytes() const { return bits() / 8; }
  constexpr bool is_float() const { return code >= kFloat16; }
  constexpr bool is_integer() const { return code >= kInt8 && code <= kUInt64; }
  constexpr bool is_signed() const { return (code >= kInt8 && code <= kInt64) || is_float(); }
  constexpr bool is_bool() const { return code == kBool; }
  /// The spelling users write and IR prints: "float16", "int32", "bool", "float8_e4m3", ...
  constexpr std::string_view name() const;
  static std::optional<DataType> from_name(std::string_view name);  ///< nothing for an unknown name
};

namespace detail {
struct DataTypeFacts {
  std::string_view name;
  int bits;
};
inline constexpr DataTypeFacts kDataTypeFacts[DataType::kCount] = {
    {"bool", 8},         {"int8", 8},        {"int16", 16},      {"int32", 32},      {"int64", 64},
    {"uint8", 8},        {"uint16", 16},     {"uint32", 32},     {"uint64", 64},     {"float16", 16},
    {"bfloat16", 16},    {"tfloat32", 32},   {"float32", 32},    {"float64", 64},    {"float8_e4m3", 8},
    {"float8_e5m2", 8},  {"float6_e2m3", 6}, {"float6_e3m2", 6}, {"float4_e2m1", 4}, {"float8_e8m0", 8},
    {"float8_ue4m3", 8},
};
}  // namespace detail

constexpr int DataType::bits() const { return detail::kDataTypeFacts[code].bits; }
constexpr std::string_view DataType::name() const { return detail::kDataTypeFacts[code].name; }
inline std::optional<DataType> DataType::from_name(std::string_view name) {
  for (int i = 0; i < kCount; ++i)
    if (detail::kDataTypeFacts[i].name == name) return DataType{static_cast<Code>(i)};
  return std::nullopt;
}

inline constexpr DataType boolean{DataType::kBool};
inline constexpr DataType int8{DataType::kInt8};
inline constexpr DataType int16{DataType::kInt16};
inline constexpr DataType int32{DataType::kInt32};
inline constexpr DataType int64{DataType::kInt64};
inline constexpr DataType uint8{DataType::kUInt8};
inline constexpr DataType uint16{DataType::kUInt16};
inline constexpr DataType uint32{DataType::kUInt32};
inline constexpr DataType uint64{DataType::kUInt64};
inline constexpr DataType float16{DataType::kFloat16};
inline constexpr DataType bfloat16{DataType::kBFloat16};
inline constexpr DataType tfloat32{DataType::kTFloat32};
inline constexpr DataType float32{DataType::kFloat32};
inline constexpr DataType float64{DataType::kFloat64};
inline constexpr DataType float8_e4m3{DataType::kFloat8E4M3};
inline constexpr DataType float8_e5m2{DataType::kFloat8E5M2};
inline constexpr DataType float6_e2m3{DataType::kFloat6E2M3};
inline constexpr DataType float6_e3m2{DataType::kFloat6E3M2};
inline constexpr DataType float4_e2m1{DataType::kFloat4E2M1};
inline constexpr DataType float8_e8m0{DataType::kFloat8E8M0};
inline constexpr DataType float8_ue4m3{DataType::kFloat8UE4M3};

}  // namespace imbrex
