#include "bench/metrics/destination.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "bench/cli/files.h"
#include "transport/base/file_descriptor.h"
#include "transport/base/invalid.h"
#include "transport/io/udp/parse_address.h"
#include "transport/wire/address.h"

namespace pacecar::metrics {
namespace {

constexpr mode_t kReadableByAll = S_IRUSR | S_IWUSR | S_IRGRP | S_IROTH;

tl::unexpected<Error> cannot_write(const std::string& path, int error) {
  return fail(
      ErrorCode::kSystem,
      "cannot write {} ({}): name a file in a directory that you may write to and that has room",
      path, std::strerror(error));
}

}  // namespace

Result<Address> listen_address(std::string_view text) {
  if (text.empty()) return listen_address(std::to_string(kDefaultPort));
  const bool port_alone = text.find(':') == text.npos;
  const auto address = parse_address(port_alone ? fmt::format("127.0.0.1:{}", text) : text);
  if (address) return *address;
  return invalid(
      "'{}' is no address to listen on: write PORT, ADDRESS:PORT or [IPV6]:PORT, such as "
      "127.0.0.1:{}",
      text, kDefaultPort);
}

Result<void> replace_file(const std::string& path, std::string_view text) {
  if (!path.ends_with(".prom")) {
    return invalid("'{}' does not end with .prom: node_exporter reads no other files", path);
  }
  // The collector ignores this name: it reads *.prom.
  std::string part = path + ".XXXXXX";
  const FileDescriptor file(mkostemp(part.data(), O_CLOEXEC));
  if (!file) return cannot_write(path, errno);
  auto written = cli::write_text(part, text);
  if (written &&
      (fchmod(file.get(), kReadableByAll) != 0 || rename(part.c_str(), path.c_str()) != 0)) {
    written = cannot_write(path, errno);
  }
  if (!written) unlink(part.c_str());
  return written;
}

}  // namespace pacecar::metrics
