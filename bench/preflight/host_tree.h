// Reads /sys, /proc, /dev and /etc of this host, or of a copy of them in a folder, and parses what
// the kernel writes there. All of it is untrusted: what cannot be parsed is nullopt or left out.
#pragma once

#include <cstddef>
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

// A list of ranges such as "0-3,8", as of CPUs.
using Ranges = std::vector<std::pair<uint64_t, uint64_t>>;
Ranges parse_ranges(std::string_view text);
bool overlap(const Ranges& a, const Ranges& b);

// A file that is missing, unreadable, a folder or a pipe counts as absent. Paths are relative to
// the root ("sys/class/net"). Nothing throws. Thread rule: any thread; it holds no state but the
// root.
class HostTree {
 public:
  static constexpr size_t kMaxFile = 64 << 10;  // bytes; what follows is not read
  static constexpr size_t kMaxNames = 4096;     // of one folder

  explicit HostTree(std::string root = "/");

  // A file's text without blanks at both ends; empty also if there is no such file.
  std::string text(std::string_view path) const;
  std::optional<std::string> bytes(std::string_view path) const;
  std::optional<uint64_t> number(std::string_view path) const;
  // Of a folder's entries, sorted; empty when there is no such folder.
  std::vector<std::string> names(std::string_view path) const;
  bool exists(std::string_view path) const;
  // The last part of what a symbolic link points to.
  std::optional<std::string> link_name(std::string_view path) const;
  // The parts of a path with all symbolic links followed, from the root of the file system.
  std::vector<std::string> resolved_parts(std::string_view path) const;
  // Opens a file for reading and writing and closes it: 0, or why that fails (an errno).
  int try_open(std::string_view path) const;

 private:
  std::string full(std::string_view path) const;

  std::string root_;
};

}  // namespace pacecar::preflight
