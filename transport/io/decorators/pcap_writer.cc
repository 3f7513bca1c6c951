#include "transport/io/decorators/pcap_writer.h"

#include <fmt/format.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "transport/io/frame.h"

namespace pacecar {
namespace {

constexpr uint32_t kPcapMagicNs = 0xA1B23C4D;  // draft-ietf-opsawg-pcap: time stamps in nanoseconds
constexpr uint32_t kLinkTypeEthernet = 1;
constexpr uint32_t kSnapBytes = 262'144;  // no frame is longer; tcpdump's default

bool write_words(std::FILE* file, std::span<const uint32_t> words) {
  return std::fwrite(words.data(), sizeof(uint32_t), words.size(), file) == words.size();
}

}  // namespace

Result<PcapWriter> PcapWriter::create(const std::string& path) {
  File file(std::fopen(path.c_str(), "wb"));
  // Version 2.4, no time zone, no accuracy; a reader learns the byte order from the magic number.
  const std::array<uint32_t, 6> header = {kPcapMagicNs, 4 << 16 | 2,      0, 0,
                                          kSnapBytes,   kLinkTypeEthernet};
  if (file == nullptr || !write_words(file.get(), header)) {
    return fail(ErrorCode::kSystem, fmt::format("cannot write the capture file '{}' ({}): choose a "
                                                "file in a directory that you may write to",
                                                path, std::strerror(errno)));
  }
  PcapWriter writer(std::move(file), path);
  writer.flush();  // an error is said at the first packet, or at the end
  return writer;
}

void PcapWriter::write(Instant now, const PcapEndpoints& ends,
                       std::span<const std::span<const uint8_t>> parts) {
  if (!good()) return;
  size_t datagram_bytes = 0;
  for (const auto part : parts) datagram_bytes += part.size();
  const HeaderTemplate headers(
      {.source = ends.source, .destination = ends.destination, .fragment = ends.ipv4_fragment});
  frame_.resize(kMaxFrameHeaderBytes);
  headers.write(ends.source.port, ends.destination.port, static_cast<uint8_t>(ends.ecn),
                datagram_bytes, frame_.data());
  frame_.resize(headers.size());
  for (const auto part : parts) frame_.insert(frame_.end(), part.begin(), part.end());
  set_udp_checksum(frame_);
  const auto size = static_cast<uint32_t>(frame_.size());
  const std::array<uint32_t, 4> record = {static_cast<uint32_t>(now.ns() / 1'000'000'000),
                                          static_cast<uint32_t>(now.ns() % 1'000'000'000), size,
                                          size};
  const bool written =
      write_words(file_.get(), record) && std::fwrite(frame_.data(), 1, size, file_.get()) == size;
  if (!written && error_ == 0) error_ = errno;
  flush();
  if (error_ != 0) file_.reset();
}

// Writes at once: a forked child that ends would write buffered bytes a second time.
void PcapWriter::flush() {
  if (error_ == 0 && std::fflush(file_.get()) != 0) error_ = errno;
}

Result<void> PcapWriter::close() {
  if (good() && std::fclose(file_.release()) != 0 && error_ == 0) error_ = errno;
  if (error_ == 0) return {};
  return fail(ErrorCode::kSystem,
              fmt::format("the capture file '{}' is cut ({}): name one on a disk that has room",
                          path_, std::strerror(error_)));
}

}  // namespace pacecar
