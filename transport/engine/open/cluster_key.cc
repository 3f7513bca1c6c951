#include "transport/engine/open/cluster_key.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "transport/base/file_descriptor.h"
#include "transport/base/return_if_error.h"

namespace pacecar {
namespace {

using bootstrap::ClusterKey;

constexpr mode_t kOthers = S_IRWXG | S_IRWXO;
// With newlines. Reading one more byte detects a longer file.
constexpr size_t kLargestFile = 2 * kMaxClusterKey;

tl::unexpected<Error> refuse(ErrorCode code, const std::string& file, const std::string& why) {
  return fail(code, fmt::format("the key file {} (PACECAR_KEY_FILE) {}", file, why));
}

tl::unexpected<Error> cannot_read(const std::string& file, int error) {
  const ErrorCode code = error == ENOENT                     ? ErrorCode::kNotFound
                         : error == EACCES || error == EPERM ? ErrorCode::kPermission
                                                             : ErrorCode::kSystem;
  return refuse(code, file,
                fmt::format("cannot be read ({}): correct its name, or make it this user's",
                            std::generic_category().message(error)));
}

Result<void> check_file(const std::string& file, const struct stat& status) {
  if (!S_ISREG(status.st_mode)) {
    return refuse(ErrorCode::kInvalidArgument, file, "is no regular file: name one with the key");
  }
  const uid_t user = ::geteuid();
  if (status.st_uid != user && status.st_uid != 0) {
    return refuse(ErrorCode::kPermission, file,
                  fmt::format("belongs to user {}, who could change it: chown {} {}", status.st_uid,
                              user, file));
  }
  if ((status.st_mode & kOthers) != 0) {
    return refuse(
        ErrorCode::kPermission, file,
        fmt::format("is open to others (mode {:04o}): chmod 600 {}", status.st_mode & 07777, file));
  }
  return {};
}

// Reads at most kLargestFile + 1 bytes.
Result<std::vector<uint8_t>> read_all(const FileDescriptor& fd, const std::string& file) {
  std::vector<uint8_t> bytes(kLargestFile + 1);
  size_t size = 0;
  while (size < bytes.size()) {
    const ssize_t n = ::read(fd.get(), bytes.data() + size, bytes.size() - size);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return cannot_read(file, errno);
    if (n == 0) break;
    size += static_cast<size_t>(n);
  }
  bytes.resize(size);
  return bytes;
}

}  // namespace

Result<ClusterKey> read_cluster_key(const std::string& file) {
  if (file.empty()) return ClusterKey{};
  // O_NONBLOCK, as the file may be a FIFO without a writer: its type is known only after opening.
  const FileDescriptor fd(::open(file.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  struct stat status {};
  if (!fd || ::fstat(fd.get(), &status) != 0) return cannot_read(file, errno);
  RETURN_IF_ERROR(check_file(file, status));
  ASSIGN_OR_RETURN(auto bytes, read_all(fd, file));
  while (!bytes.empty() && bytes.back() == '\n') bytes.pop_back();
  if (bytes.size() < kMinClusterKey || bytes.size() > kMaxClusterKey) {
    const bool few = bytes.size() < kMinClusterKey;
    return refuse(ErrorCode::kInvalidArgument, file,
                  fmt::format("has a key of {} than {} bytes: name a file with one of {} to {}, "
                              "such as 'openssl rand -base64 32' makes",
                              few ? "less" : "more", few ? kMinClusterKey : kMaxClusterKey,
                              kMinClusterKey, kMaxClusterKey));
  }
  return ClusterKey{std::move(bytes)};
}

}  // namespace pacecar
