// Small parsers of the kernel's files, which are untrusted: what cannot be parsed is nullopt or
// left out. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace pacecar::preflight {

std::string_view trim(std::string_view text);
// Parts between separators, without the empty ones.
std::vector<std::string> split(std::string_view text, char separator);
// A text that is one decimal number, or with `base` 16 a hexadecimal one with or without 0x.
std::optional<uint64_t> parse_number(std::string_view text, int base = 10);
// The value of "KEY: VALUE" or "KEY=VALUE" in a text of lines, trimmed and without quotes; empty
// also if there is no such key.
std::string value_of(std::string_view lines, std::string_view key, char separator);

// "0000:3b:00.0"
bool is_pci_address(std::string_view text);

// Major and minor version.
using Version = std::pair<uint64_t, uint64_t>;
// "6.1.0-18-amd64", "2.27.5"
std::optional<Version> version_of(std::string_view text);

// A list of ranges such as "0-3,8", as of CPUs.
using Ranges = std::vector<std::pair<uint64_t, uint64_t>>;
Ranges parse_ranges(std::string_view text);
bool overlap(const Ranges& a, const Ranges& b);

}  // namespace pacecar::preflight
