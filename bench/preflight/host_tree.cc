#include "bench/preflight/host_tree.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>

#include "bench/preflight/text.h"
#include "transport/base/file_descriptor.h"

namespace pacecar::preflight {
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
