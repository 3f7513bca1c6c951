#include "bench/perf/json_fields.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace pacecar::perf {
namespace {

constexpr std::string_view kHexDigits = "0123456789abcdef";

tl::unexpected<Error> bad_field(std::string_view key) {
  return fail(ErrorCode::kPeer,
              fmt::format("the peer sent no usable '{}': run the same version of pacecar at both "
                          "ends",
                          key));
}

const nlohmann::json* find(const nlohmann::json& object, std::string_view key) {
  if (!object.is_object()) return nullptr;
  const auto it = object.find(key);
  return it == object.end() ? nullptr : &*it;
}

}  // namespace

// Sees what the parser sees, up to the first error.
bool nests_too_deep(std::string_view text) {
  size_t depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '[' || c == '{') {
      if (++depth > kMaxJsonDepth) return true;
    } else if (c == ']' || c == '}') {
      if (depth > 0) --depth;
    } else if (c == '"') {
      in_string = true;
    }
  }
  return false;
}

Result<uint64_t> unsigned_field(const nlohmann::json& object, std::string_view key, uint64_t min,
                                uint64_t max) {
  const nlohmann::json* value = find(object, key);
  if (value == nullptr || !value->is_number_unsigned()) return bad_field(key);
  const auto number = value->get<uint64_t>();
  if (number < min || number > max) return bad_field(key);
  return number;
}

Result<double> number_field(const nlohmann::json& object, std::string_view key, double min,
                            double max) {
  const nlohmann::json* value = find(object, key);
  if (value == nullptr || !value->is_number()) return bad_field(key);
  const auto number = value->get<double>();
  if (!(number >= min && number <= max)) return bad_field(key);  // catches NaN too
  return number;
}

Result<bool> bool_field(const nlohmann::json& object, std::string_view key) {
  const nlohmann::json* value = find(object, key);
  if (value == nullptr || !value->is_boolean()) return bad_field(key);
  return value->get<bool>();
}

Result<std::string> text_field(const nlohmann::json& object, std::string_view key,
                               size_t max_size) {
  const nlohmann::json* value = find(object, key);
  if (value == nullptr || !value->is_string()) return bad_field(key);
  auto text = value->get<std::string>();
  const bool printable =
      std::all_of(text.begin(), text.end(), [](char c) { return c >= ' ' && c <= '~'; });
  if (text.size() > max_size || !printable) return bad_field(key);
  return text;
}

Result<void> bytes_field(const nlohmann::json& object, std::string_view key,
                         std::span<uint8_t> out) {
  const auto text = text_field(object, key, 2 * out.size());
  if (!text || text->size() != 2 * out.size()) return bad_field(key);
  for (size_t i = 0; i < text->size(); ++i) {
    const size_t digit = kHexDigits.find((*text)[i]);
    if (digit == std::string_view::npos) return bad_field(key);
    out[i / 2] = static_cast<uint8_t>(out[i / 2] << 4 | digit);
  }
  return {};
}

std::string to_hex(std::span<const uint8_t> bytes) {
  std::string text;
  for (const uint8_t byte : bytes) {
    text += kHexDigits[byte >> 4];
    text += kHexDigits[byte & 15];
  }
  return text;
}

}  // namespace pacecar::perf
