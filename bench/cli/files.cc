#include "bench/cli/files.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>

#include "transport/base/file_descriptor.h"
#include "transport/base/invalid.h"
#include "transport/base/return_if_error.h"

namespace pacecar::cli {
namespace {

using File = std::unique_ptr<FILE, int (*)(FILE*)>;

tl::unexpected<Error> cannot(std::string_view what, const std::string& path, int code) {
  return fail(code == ENOENT && what == "read" ? ErrorCode::kNotFound : ErrorCode::kSystem,
              "cannot {} '{}' ({}): {}", what, path, std::strerror(code),
              what == "read" ? "name a file that you may read"
                             : "name a place that you may write to and that has room");
}

}  // namespace

Result<std::string> read_text(const std::string& path) {
  const File file(std::fopen(path.c_str(), "re"), std::fclose);
  if (file == nullptr) return cannot("read", path, errno);
  std::string text;
  char buffer[1 << 16];
  errno = 0;
  while (const size_t count = std::fread(buffer, 1, sizeof buffer, file.get())) {
    text.append(buffer, count);
  }
  if (std::ferror(file.get()) != 0) return cannot("read", path, errno);
  return text;
}

Result<void> check_writable(const std::string& path) {
  if (path.empty() || path == kStandardOutput) return {};
  const bool there = faccessat(AT_FDCWD, path.c_str(), F_OK, AT_SYMLINK_NOFOLLOW) == 0;
  const FileDescriptor file(open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666));
  if (!file) return cannot("write", path, errno);
  if (!there) unlink(path.c_str());  // a run that fails leaves no file
  return {};
}

Result<void> write_text(const std::string& path, std::string_view text) {
  if (path == kStandardOutput) {
    std::fwrite(text.data(), 1, text.size(), stdout);
    return {};  // main() asks flush_output() before it ends
  }
  File file(std::fopen(path.c_str(), "we"), std::fclose);
  if (file == nullptr) return cannot("write", path, errno);
  errno = 0;
  const bool written = std::fwrite(text.data(), 1, text.size(), file.get()) == text.size();
  const bool closed = std::fclose(file.release()) == 0;
  if (!written || !closed) return cannot("write", path, errno);
  return {};
}

Result<void> write_json(const std::string& path, const nlohmann::json& document) {
  if (path.empty()) return {};
  return write_text(path,
                    document.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
}

Result<void> write_results(std::string_view text, const std::string& json_file,
                           const nlohmann::json& document) {
  Result<void> printed;
  if (json_file != kStandardOutput) {
    std::fwrite(text.data(), 1, text.size(), stdout);
    printed = flush_output();  // before errors that refer to it
  }
  RETURN_IF_ERROR(write_json(json_file, document));
  return printed;
}

Result<void> flush_output() {
  errno = 0;
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return {};
  return fail(ErrorCode::kSystem,
              "cannot write to standard output ({}): what was printed is not complete",
              errno != 0 ? std::strerror(errno) : "a write before failed");
}

}  // namespace pacecar::cli
