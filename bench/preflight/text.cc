#include "bench/preflight/text.h"

#include <algorithm>

#include "transport/base/take_until.h"
#include "transport/base/to_number.h"

namespace pacecar::preflight {
namespace {

constexpr std::string_view kBlanks(" \t\r\n\v\f\0", 7);

}  // namespace

std::string_view trim(std::string_view text) {
  const size_t first = text.find_first_not_of(kBlanks);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlanks) - first + 1);
}

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  while (!text.empty()) {
    const std::string_view part = take_until(text, separator);
    if (!part.empty()) parts.emplace_back(part);
  }
  return parts;
}

std::optional<uint64_t> parse_number(std::string_view text, int base) {
  if (base == 16 && text.starts_with("0x")) text.remove_prefix(2);
  return to_number<uint64_t>(text, base);
}

std::string value_of(std::string_view lines, std::string_view key, char separator) {
  for (const std::string& line : split(lines, '\n')) {
    const size_t at = line.find(separator);
    if (at == std::string::npos || trim(std::string_view(line).substr(0, at)) != key) continue;
    std::string_view value = trim(std::string_view(line).substr(at + 1));
    if (value.size() >= 2 && value.front() == '"' && value.back() == '"') {
      value = value.substr(1, value.size() - 2);
    }
    return std::string(value);
  }
  return "";
}

bool is_pci_address(std::string_view text) {
  constexpr size_t kSize = 12;  // domain, bus, device and function; a domain may be longer
  return text.size() >= kSize && text[text.size() - 2] == '.' && std::ranges::count(text, ':') == 2;
}

std::optional<Version> version_of(std::string_view text) {
  const auto parts = split(text, '.');
  if (parts.size() < 2) return std::nullopt;
  const auto major = parse_number(parts[0]);
  const auto minor = parse_number(parts[1].substr(0, parts[1].find_first_not_of("0123456789")));
  return major && minor ? std::optional(Version(*major, *minor)) : std::nullopt;
}

Ranges parse_ranges(std::string_view text) {
  Ranges ranges;
  for (const std::string& part : split(text, ',')) {
    const std::string_view range = trim(part);
    const size_t dash = range.find('-');
    const auto first = parse_number(range.substr(0, dash));
    const auto last = dash == std::string_view::npos ? first : parse_number(range.substr(dash + 1));
    if (first && last && *first <= *last) ranges.emplace_back(*first, *last);
  }
  return ranges;
}

bool overlap(const Ranges& a, const Ranges& b) {
  for (const auto& [a_first, a_last] : a) {
    for (const auto& [b_first, b_last] : b) {
      if (a_first <= b_last && b_first <= a_last) return true;
    }
  }
  return false;
}

}  // namespace pacecar::preflight
