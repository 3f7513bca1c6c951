#include "bench/preflight/host_tree.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>

#include "transport/base/file_descriptor.h"
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
    const size_t end = text.find(separator);
    if (end != 0) parts.emplace_back(text.substr(0, end));
    if (end == std::string_view::npos) break;
    text.remove_prefix(end + 1);
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

HostTree::HostTree(std::string root) : root_(std::move(root)) {
  if (!root_.ends_with('/')) root_ += '/';
}

std::string HostTree::full(std::string_view path) const { return root_ + std::string(path); }

std::optional<std::string> HostTree::bytes(std::string_view path) const {
  // Not blocking: a copied tree may hold a pipe.
  const FileDescriptor fd(open(full(path).c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!fd) return std::nullopt;
  struct stat status {};
  if (fstat(fd.get(), &status) != 0 || !S_ISREG(status.st_mode)) return std::nullopt;
  std::string content(kMaxFile, '\0');
  size_t size = 0;
  ssize_t got = 0;
  while (size < kMaxFile && (got = read(fd.get(), content.data() + size, kMaxFile - size)) > 0) {
    size += static_cast<size_t>(got);
  }
  if (got < 0) return std::nullopt;  // as many attributes of /sys do instead of giving a value
  content.resize(size);
  return content;
}

std::string HostTree::text(std::string_view path) const {
  return std::string(trim(bytes(path).value_or("")));
}

std::optional<uint64_t> HostTree::number(std::string_view path) const {
  return parse_number(text(path));
}

std::vector<std::string> HostTree::names(std::string_view path) const {
  std::vector<std::string> names;
  std::error_code ended;
  for (std::filesystem::directory_iterator entry(full(path), ended), end;
       !ended && entry != end && names.size() < kMaxNames; entry.increment(ended)) {
    names.push_back(entry->path().filename());
  }
  std::ranges::sort(names);
  return names;
}

bool HostTree::exists(std::string_view path) const {
  std::error_code ignored;
  return std::filesystem::exists(std::filesystem::symlink_status(full(path), ignored));
}

std::optional<std::string> HostTree::link_name(std::string_view path) const {
  std::error_code failed;
  const auto target = std::filesystem::read_symlink(full(path), failed);
  return failed ? std::nullopt : std::optional(target.filename().string());
}

std::vector<std::string> HostTree::resolved_parts(std::string_view path) const {
  std::error_code failed;
  return split(std::filesystem::canonical(full(path), failed).string(), '/');
}

int HostTree::try_open(std::string_view path) const {
  const FileDescriptor file(open(full(path).c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  return file ? 0 : errno;
}

}  // namespace pacecar::preflight
