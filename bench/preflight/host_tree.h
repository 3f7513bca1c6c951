// Reads /sys, /proc, /dev and /etc of this host, or of a copy in a folder. All of it is untrusted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace pacecar::preflight {

// A file that is missing, unreadable, a folder or a pipe counts as absent. Paths are relative to
// the root ("sys/class/net"). Nothing throws. Thread rule: any thread; it holds no state but the
// root.
class HostTree {
 public:
  static constexpr size_t kMaxFile = 64 << 10;  // bytes; what follows is not read
  static constexpr size_t kMaxNames = 65536;    // of one folder

  explicit HostTree(std::string root = "/");

  // A file's text without blanks at both ends; empty also if there is no such file.
  std::string text(std::string_view path) const;
  std::optional<std::string> bytes(std::string_view path) const;
  std::optional<uint64_t> number(std::string_view path) const;
  // The names of a folder's entries, sorted; empty when there is no such folder.
  std::vector<std::string> names(std::string_view path) const;
  bool exists(std::string_view path) const;
  // The last part of a symbolic link's target.
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
