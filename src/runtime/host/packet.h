// SPDX-License-Identifier: Apache-2.0
// Values as bytes, for another process of the same program: PacketWriter puts them one after the other, PacketReader takes
// them in the same order. A structure says once which members it has:
//
//   template <class Archive>
//   void members(Archive& archive, Finding& f) { archive(f.kind, f.message, f.count); }
#pragma once

#include <array>
#include <cstddef>
#include <cstring>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace imbrex::runtime {

template <class T>
concept PlainValue = std::is_arithmetic_v<T> || std::is_enum_v<T>;

class PacketWriter {
 public:
  template <class... T>
  void operator()(const T&... values) {
    (put(values), ...);
  }
  const std::string& bytes() const { return bytes_; }

 private:
  void put_raw(const void* from, size_t count) { bytes_.append(static_cast<const char*>(from), count); }
  template <PlainValue T>
  void put(const T& value) {
    put_raw(&value, sizeof value);
  }
  void put(std::string_view text) {
    put(text.size());
    put_raw(text.data(), text.size());
  }
  void put(const std::string& text) { put(std::string_view(text)); }
  void put(std::span<const std::byte> bytes) {
    put(std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
  }
  template <class T>
  void put(const std::vector<T>& values) {
    put(values.size());
    for (const T& value : values) put(value);
  }
  template <class T, size_t N>
  void put(const std::array<T, N>& values) {
    for (const T& value : values) put(value);
  }
  template <class T>
  void put(const std::optional<T>& value) {
    put(value.has_value());
    if (value.has_value()) put(*value);
  }
  template <class T>
  requires(std::is_class_v<T>) void put(const T& value) {
    members(*this, const_cast<T&>(value));  // which reads them only
  }

  std::string bytes_;
};

/// Views that are read are of the packet, and last as long. std::runtime_error where the packet is too short.
class PacketReader {
 public:
  explicit PacketReader(std::string_view bytes) : left_(bytes) {}
  template <class... T>
  void operator()(T&... values) {
    (take(values), ...);
  }
  template <class T>
  T next() {
    T value{};
    take(value);
    return value;
  }

 private:
  std::string_view take_raw(size_t count) {
    if (count > left_.size()) throw std::runtime_error("a message between ranks is cut short");
    const std::string_view taken = left_.substr(0, count);
    left_.remove_prefix(count);
    return taken;
  }
  template <PlainValue T>
  void take(T& value) {
    std::memcpy(&value, take_raw(sizeof value).data(), sizeof value);
  }
  void take(std::string_view& text) { text = take_raw(next<size_t>()); }
  void take(std::string& text) { text = next<std::string_view>(); }
  void take(std::span<const std::byte>& bytes) {
    const auto text = next<std::string_view>();
    bytes = {reinterpret_cast<const std::byte*>(text.data()), text.size()};
  }
  template <class T>
  void take(std::vector<T>& values) {
    const auto count = next<size_t>();
    if (count > left_.size()) take_raw(count);  // each takes a byte at least
    values.resize(count);
    for (T& value : values) take(value);
  }
  template <class T, size_t N>
  void take(std::array<T, N>& values) {
    for (T& value : values) take(value);
  }
  template <class T>
  void take(std::optional<T>& value) {
    if (next<bool>())
      take(value.emplace());
    else
      value.reset();
  }
  template <class T>
  requires(std::is_class_v<T>) void take(T& value) { members(*this, value); }

  std::string_view left_;
};

}  // namespace imbrex::runtime
