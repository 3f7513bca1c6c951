// Reads untrusted JSON of other processes and files. A member that is missing, of another type or
// out of range is an error of code kPeer.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "transport/base/result.h"

namespace pacecar::cli {

// Levels of arrays and objects. Our own documents have less than half as many.
constexpr size_t kMaxJsonDepth = 32;

bool nests_too_deep(std::string_view text);

// All untrusted text is parsed here. Returns a discarded value (is_discarded(), of no other type)
// if the text is no JSON, or has more levels: copying, comparing or printing a value takes stack
// for each level. The caller bounds the length of the text. (The parser's own callbacks would make
// its time quadratic.)
template <typename Json = nlohmann::json>
Json parse_json(std::string_view text) {
  if (nests_too_deep(text)) return Json::value_t::discarded;
  return Json::parse(text, nullptr, /*allow_exceptions=*/false);
}

// Removes the first line of the text, and returns it without its end.
std::optional<std::string> take_line(std::string& text);
// The document on one line, with its end. What is not UTF-8 is replaced: texts may be a peer's.
std::string json_line(const nlohmann::json& document);

Result<uint64_t> unsigned_field(const nlohmann::json& object, std::string_view key, uint64_t min,
                                uint64_t max);
constexpr double kMaxNumber = 1e18;  // of anything that a peer measures
// Finite and in [min, max].
Result<double> number_field(const nlohmann::json& object, std::string_view key, double min,
                            double max);
Result<bool> bool_field(const nlohmann::json& object, std::string_view key);
// Printable ASCII of at most max_size characters, as a peer's text may be printed on our terminal.
Result<std::string> text_field(const nlohmann::json& object, std::string_view key, size_t max_size);
// Exactly as many bytes as `out` has, in the form of to_hex().
Result<void> bytes_field(const nlohmann::json& object, std::string_view key,
                         std::span<uint8_t> out);
std::string to_hex(std::span<const uint8_t> bytes);

}  // namespace pacecar::cli
