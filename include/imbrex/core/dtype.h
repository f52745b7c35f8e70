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
  /// In the order of kDataTypeFacts. The numbers are those of c.h and do not change.
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
    kInt1,         ///< two's complement: 0 and -1
    kInt2,
    kInt3,
    kInt4,
    kInt5,
    kInt6,
    kInt7,
    kUInt1,
    kUInt2,
    kUInt3,
    kUInt4,
    kUInt5,
    kUInt6,
    kUInt7,
    kFloat3E1M1,  ///< this and the following: all codes are numbers
    kFloat5E2M2,
    kFloat5E3M1,
    kFloat6E4M1,
    kFloat7E2M4,
    kFloat7E3M3,
    kFloat7E4M2,
    kFloat7E5M1,
    kCount,
  };
  Code code = kInt32;

  friend constexpr bool operator==(DataType, DataType) = default;

  /// Size of one element in memory, in bits (bool is stored as a byte). Elements of less than a byte follow one
  /// another from the lowest bit on.
  constexpr int bits() const;
  /// Size of one element in bytes; 0 for types smaller than a byte.
  constexpr int bytes() const { return bits() / 8; }
  constexpr bool is_float() const;
  constexpr bool is_integer() const;
  constexpr bool is_signed() const;
  constexpr bool is_bool() const { return code == kBool; }
  /// The spelling users write and IR prints: "float16", "int32", "bool", "float8_e4m3", ...
  constexpr std::string_view name() const;
  static std::optional<DataType> from_name(std::string_view name);  ///< nothing for an unknown name
};

/// What the bit patterns of a floating-point type with the largest exponent mean.
enum class Specials : uint8_t {
  kInfNan,   ///< as in IEEE 754: fraction zero is an infinity, anything else NaN
  kNanOnly,  ///< only the pattern of all ones is NaN; the others are numbers
  kNone,     ///< all are numbers
};

/// All that is known of a type.
struct DataTypeFacts {
  enum Kind : uint8_t { kBoolean, kSigned, kUnsigned, kFloating };
  std::string_view name;
  int bits;
  Kind kind;
  // Of floating-point types: a number is (-1)^sign * 1.fraction * 2^(exponent - bias), subnormal where the exponent is 0
  // (float8_e8m0 has no subnormals).
  int exponent_bits = 0;
  int mantissa_bits = 0;  ///< of the fraction, as stored
  int bias = 0;
  Specials specials = Specials::kNone;
  bool has_sign = true;
};

namespace detail {
constexpr DataTypeFacts floating(std::string_view name, int bits, int exponent_bits, int mantissa_bits,
                                 Specials specials, bool has_sign = true) {
  const int bias = (1 << (exponent_bits - 1)) - 1;
  return {name, bits, DataTypeFacts::kFloating, exponent_bits, mantissa_bits, bias, specials, has_sign};
}
inline constexpr DataTypeFacts kDataTypeFacts[DataType::kCount + 1] = {
    {"bool", 8, DataTypeFacts::kBoolean},
    {"int8", 8, DataTypeFacts::kSigned},
    {"int16", 16, DataTypeFacts::kSigned},
    {"int32", 32, DataTypeFacts::kSigned},
    {"int64", 64, DataTypeFacts::kSigned},
    {"uint8", 8, DataTypeFacts::kUnsigned},
    {"uint16", 16, DataTypeFacts::kUnsigned},
    {"uint32", 32, DataTypeFacts::kUnsigned},
    {"uint64", 64, DataTypeFacts::kUnsigned},
    floating("float16", 16, 5, 10, Specials::kInfNan),
    floating("bfloat16", 16, 8, 7, Specials::kInfNan),
    floating("tfloat32", 32, 8, 10, Specials::kInfNan),
    floating("float32", 32, 8, 23, Specials::kInfNan),
    floating("float64", 64, 11, 52, Specials::kInfNan),
    floating("float8_e4m3", 8, 4, 3, Specials::kNanOnly),
    floating("float8_e5m2", 8, 5, 2, Specials::kInfNan),
    floating("float6_e2m3", 6, 2, 3, Specials::kNone),
    floating("float6_e3m2", 6, 3, 2, Specials::kNone),
    floating("float4_e2m1", 4, 2, 1, Specials::kNone),
    floating("float8_e8m0", 8, 8, 0, Specials::kNanOnly, false),
    floating("float8_ue4m3", 8, 4, 3, Specials::kNanOnly, false),
    {"int1", 1, DataTypeFacts::kSigned},
    {"int2", 2, DataTypeFacts::kSigned},
    {"int3", 3, DataTypeFacts::kSigned},
    {"int4", 4, DataTypeFacts::kSigned},
    {"int5", 5, DataTypeFacts::kSigned},
    {"int6", 6, DataTypeFacts::kSigned},
    {"int7", 7, DataTypeFacts::kSigned},
    {"uint1", 1, DataTypeFacts::kUnsigned},
    {"uint2", 2, DataTypeFacts::kUnsigned},
    {"uint3", 3, DataTypeFacts::kUnsigned},
    {"uint4", 4, DataTypeFacts::kUnsigned},
    {"uint5", 5, DataTypeFacts::kUnsigned},
    {"uint6", 6, DataTypeFacts::kUnsigned},
    {"uint7", 7, DataTypeFacts::kUnsigned},
    floating("float3_e1m1", 3, 1, 1, Specials::kNone),
    floating("float5_e2m2", 5, 2, 2, Specials::kNone),
    floating("float5_e3m1", 5, 3, 1, Specials::kNone),
    floating("float6_e4m1", 6, 4, 1, Specials::kNone),
    floating("float7_e2m4", 7, 2, 4, Specials::kNone),
    floating("float7_e3m3", 7, 3, 3, Specials::kNone),
    floating("float7_e4m2", 7, 4, 2, Specials::kNone),
    floating("float7_e5m1", 7, 5, 1, Specials::kNone),
    {"any type", 0, DataTypeFacts::kBoolean},  // of a pointer that names none
};
}  // namespace detail

/// The facts of a type.
constexpr const DataTypeFacts& facts_of(DataType type) { return detail::kDataTypeFacts[type.code]; }

constexpr int DataType::bits() const { return facts_of(*this).bits; }
constexpr std::string_view DataType::name() const { return facts_of(*this).name; }
constexpr bool DataType::is_float() const { return facts_of(*this).kind == DataTypeFacts::kFloating; }
constexpr bool DataType::is_integer() const {
  return facts_of(*this).kind == DataTypeFacts::kSigned || facts_of(*this).kind == DataTypeFacts::kUnsigned;
}
constexpr bool DataType::is_signed() const {
  return facts_of(*this).kind == DataTypeFacts::kSigned || is_float();
}
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
inline constexpr DataType int1{DataType::kInt1};
inline constexpr DataType int2{DataType::kInt2};
inline constexpr DataType int3{DataType::kInt3};
inline constexpr DataType int4{DataType::kInt4};
inline constexpr DataType int5{DataType::kInt5};
inline constexpr DataType int6{DataType::kInt6};
inline constexpr DataType int7{DataType::kInt7};
inline constexpr DataType uint1{DataType::kUInt1};
inline constexpr DataType uint2{DataType::kUInt2};
inline constexpr DataType uint3{DataType::kUInt3};
inline constexpr DataType uint4{DataType::kUInt4};
inline constexpr DataType uint5{DataType::kUInt5};
inline constexpr DataType uint6{DataType::kUInt6};
inline constexpr DataType uint7{DataType::kUInt7};
inline constexpr DataType float3_e1m1{DataType::kFloat3E1M1};
inline constexpr DataType float5_e2m2{DataType::kFloat5E2M2};
inline constexpr DataType float5_e3m1{DataType::kFloat5E3M1};
inline constexpr DataType float6_e4m1{DataType::kFloat6E4M1};
inline constexpr DataType float7_e2m4{DataType::kFloat7E2M4};
inline constexpr DataType float7_e3m3{DataType::kFloat7E3M3};
inline constexpr DataType float7_e4m2{DataType::kFloat7E4M2};
inline constexpr DataType float7_e5m1{DataType::kFloat7E5M1};

}  // namespace imbrex
