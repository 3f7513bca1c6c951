#include "bench/metrics/textfile.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "transport/base/file_descriptor.h"

namespace pacecar::metrics {
namespace {

constexpr mode_t kReadableByAll = S_IRUSR | S_IWUSR | S_IRGRP | S_IROTH;

bool write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(fd, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    text.remove_prefix(static_cast<size_t>(written));
  }
  return true;
}

tl::unexpected<Error> cannot_write(const std::string& path, int error) {
  return fail(ErrorCode::kSystem,
              fmt::format("cannot write {} ({}): name a file in a directory that you may write to "
                          "and that has room",
                          path, std::strerror(error)));
}

}  // namespace

Result<void> replace_file(const std::string& path, std::string_view text) {
  if (!path.ends_with(".prom")) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("'{}' does not end with .prom: node_exporter reads no other files",
                            path));
  }
  // A name that the collector ignores (it reads *.prom).
  std::string part = path + ".XXXXXX";
  const FileDescriptor file(mkostemp(part.data(), O_CLOEXEC));
  if (!file) return cannot_write(path, errno);
  if (!write_all(file.get(), text) || fchmod(file.get(), kReadableByAll) != 0 ||
      rename(part.c_str(), path.c_str()) != 0) {
    const int error = errno;
    unlink(part.c_str());
    return cannot_write(path, error);
  }
  return {};
}

}  // namespace pacecar::metrics
