#include "bench/metrics/destination.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>

#include "bench/cli/files.h"
#include "transport/base/file_descriptor.h"
#include "transport/base/to_number.h"

namespace pacecar::metrics {
namespace {

tl::unexpected<Error> bad(std::string_view text) {
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("'{}' is no address to listen on: write PORT, ADDRESS:PORT or "
                          "[IPV6]:PORT, such as 127.0.0.1:{}",
                          text, kDefaultPort));
}

constexpr mode_t kReadableByAll = S_IRUSR | S_IWUSR | S_IRGRP | S_IROTH;

tl::unexpected<Error> cannot_write(const std::string& path, int error) {
  return fail(ErrorCode::kSystem,
              fmt::format("cannot write {} ({}): name a file in a directory that you may write to "
                          "and that has room",
                          path, std::strerror(error)));
}

}  // namespace

Result<Address> parse_address(std::string_view text) {
  Address address;
  if (text.empty()) return address;
  if (const auto port = to_number<uint16_t>(text)) {
    address.port = *port;
    return address;
  }
  if (std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; })) return bad(text);
  std::string_view host = text;
  std::string_view port;
  if (text.starts_with('[')) {
    const size_t end = text.find(']');
    if (end == std::string_view::npos) return bad(text);
    host = text.substr(1, end - 1);
    port = text.substr(end + 1);
  } else if (std::ranges::count(text, ':') == 1) {
    host = text.substr(0, text.find(':'));
    port = text.substr(text.find(':'));
  }
  if (!port.empty()) {
    const auto number = port.starts_with(':') ? to_number<uint16_t>(port.substr(1)) : std::nullopt;
    if (!number) return bad(text);
    address.port = *number;
  }
  const bool written = std::ranges::all_of(host, [](char c) { return c > ' ' && c <= '~'; });
  if (host.empty() || !written) return bad(text);
  address.host = host;
  return address;
}

bool is_loopback(const Address& address) {
  in_addr v4{};
  in6_addr v6{};
  if (inet_pton(AF_INET, address.host.c_str(), &v4) == 1) return ntohl(v4.s_addr) >> 24 == 127;
  if (inet_pton(AF_INET6, address.host.c_str(), &v6) == 1) return IN6_IS_ADDR_LOOPBACK(&v6);
  return address.host == "localhost";
}

std::string to_string(const Address& address) {
  const bool v6 = address.host.find(':') != std::string::npos;
  return fmt::format("{}{}{}:{}", v6 ? "[" : "", address.host, v6 ? "]" : "", address.port);
}

Result<void> replace_file(const std::string& path, std::string_view text) {
  if (!path.ends_with(".prom")) {
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format("'{}' does not end with .prom: node_exporter reads no other files", path));
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
