#include "bench/cli/json_fields.h"

#include <fmt/format.h>

#include <algorithm>

#include "transport/base/invalid.h"
#include "transport/base/to_number.h"

namespace pacecar::cli {
namespace {

tl::unexpected<Error> bad_field(std::string_view key) {
  return fail(ErrorCode::kPeer,
              "'{}' is missing or unusable in what another process sent: run the same version of "
              "pacecar everywhere",
              key);
}

const nlohmann::json* find(const nlohmann::json& object, std::string_view key) {
  if (!object.is_object()) return nullptr;
  const auto it = object.find(key);
  return it == object.end() ? nullptr : &*it;
}

}  // namespace

// Counts brackets outside of strings. May be wrong for invalid text: the parser refuses it.
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

std::optional<std::string> take_line(std::string& text) {
  const size_t end = text.find('\n');
  if (end == std::string::npos) return std::nullopt;
  std::string line = text.substr(0, end);
  text.erase(0, end + 1);
  return line;
}

std::string json_line(const nlohmann::json& document) {
  return document.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
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
  if (text->find_first_not_of("0123456789abcdef") != std::string::npos) return bad_field(key);
  for (size_t i = 0; i < out.size(); ++i) out[i] = *to_number<uint8_t>(text->substr(2 * i, 2), 16);
  return {};
}

std::string to_hex(std::span<const uint8_t> bytes) {
  return fmt::format("{:02x}", fmt::join(bytes, ""));
}

}  // namespace pacecar::cli
