// JSON that another process or a file gave us, and members of its objects: present, of the right
// type and in range, or an error of code kPeer.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>

#include "transport/base/result.h"

namespace pacecar::perf {

// Arrays and objects within each other. Ours have less than half as many.
constexpr size_t kMaxJsonDepth = 32;

bool nests_too_deep(std::string_view text);

// Discarded (is_discarded(), of no other type) where the text is no JSON, or nests deeper: to copy,
// compare or print a value takes stack for each level. The caller bounds the length of the text.
// All untrusted text is parsed here.
template <typename Json = nlohmann::json>
Json parse_json(std::string_view text) {
  if (nests_too_deep(text)) return Json::value_t::discarded;
  return Json::parse(text, nullptr, /*allow_exceptions=*/false);
}

// The document on one line, with its end. What is not UTF-8 is replaced: texts may be a peer's.
std::string json_line(const nlohmann::json& document);

Result<uint64_t> unsigned_field(const nlohmann::json& object, std::string_view key, uint64_t min,
                                uint64_t max);
// Finite and in [min, max].
Result<double> number_field(const nlohmann::json& object, std::string_view key, double min,
                            double max);
Result<bool> bool_field(const nlohmann::json& object, std::string_view key);
// Printable ASCII of at most max_size characters: a peer's text ends up on our terminal.
Result<std::string> text_field(const nlohmann::json& object, std::string_view key, size_t max_size);
// As many bytes as `out` has, in the form of to_hex().
Result<void> bytes_field(const nlohmann::json& object, std::string_view key,
                         std::span<uint8_t> out);
std::string to_hex(std::span<const uint8_t> bytes);

}  // namespace pacecar::perf
