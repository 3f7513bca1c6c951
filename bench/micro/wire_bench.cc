// Cost of building, reading and checking one packet.
#include <benchmark/benchmark.h>

#include <array>
#include <vector>

#include "transport/wire/checksum.h"
#include "transport/wire/extended.h"

namespace pacecar::wire {
namespace {

constexpr DataHeader kHeader{.opcode = Opcode::kWriteWithImm,
                             .destination_qp = 17,
                             .psn = 4711,
                             .address = 0x7f0012345000,
                             .key = 0xDEADBEEF,
                             .length = 1 << 20,
                             .immediate = 99,
                             .msn = 3,
                             .timestamp = 123456789};

std::vector<uint8_t> data_packet(size_t payload_bytes) {
  std::vector<uint8_t> packet(kDataHeaderBytes + payload_bytes + kChecksumBytes, 0x5A);
  encode(kHeader, std::span(packet).first<kDataHeaderBytes>());
  return packet;
}

void encode_data_header(benchmark::State& state) {
  DataHeader header = kHeader;
  std::array<uint8_t, kDataHeaderBytes> out;
  for (auto _ : state) {
    ++header.psn;
    encode(header, out);
    benchmark::DoNotOptimize(out);
  }
}
BENCHMARK(encode_data_header);

void decode_data_header(benchmark::State& state) {
  const auto packet = data_packet(4096);
  DataHeader header;
  std::span<const uint8_t> payload;
  for (auto _ : state) {
    benchmark::DoNotOptimize(decode(packet, header, payload));
    benchmark::DoNotOptimize(header);
    benchmark::DoNotOptimize(payload);
  }
}
BENCHMARK(decode_data_header);

// The argument is the number of bitmap words.
void encode_ack(benchmark::State& state) {
  const std::vector<uint64_t> bitmap(static_cast<size_t>(state.range(0)), 0x5555555555555555);
  AckHeader header{.destination_qp = 17, .echo_valid = true};
  std::vector<uint8_t> out(ack_bytes(bitmap.size()));
  for (auto _ : state) {
    ++header.cumulative;
    benchmark::DoNotOptimize(encode(header, bitmap, {}, out));
  }
}
BENCHMARK(encode_ack)->Arg(0)->Arg(4)->Arg(256);

void decode_ack(benchmark::State& state) {
  const std::vector<uint64_t> words(static_cast<size_t>(state.range(0)), 0x5555555555555555);
  std::vector<uint8_t> packet(ack_bytes(words.size()));
  encode({.destination_qp = 17, .echo_valid = true}, words, {}, packet);
  AckHeader header;
  Bitmap bitmap;
  TelemetryView telemetry;
  for (auto _ : state) {
    benchmark::DoNotOptimize(decode(packet, header, bitmap, telemetry));
    uint64_t bits = 0;
    for (size_t i = 0; i < bitmap.words(); ++i) bits ^= bitmap[i];
    benchmark::DoNotOptimize(header);
    benchmark::DoNotOptimize(bits);
  }
}
BENCHMARK(decode_ack)->Arg(0)->Arg(4)->Arg(256);

// The argument is the payload; the checksum covers header and payload.
void checksum_full(benchmark::State& state) {
  const auto packet = data_packet(static_cast<size_t>(state.range(0)));
  const std::span<const uint8_t> all(packet);
  for (auto _ : state) {
    benchmark::DoNotOptimize(
        checksum(all.first(kDataHeaderBytes), all.subspan(kDataHeaderBytes), Coverage::kFull));
  }
  state.SetBytesProcessed(state.iterations() * state.range(0));
}
BENCHMARK(checksum_full)->Arg(64)->Arg(1024)->Arg(4096)->Arg(8192);

void checksum_header(benchmark::State& state) {
  const auto packet = data_packet(4096);
  const std::span<const uint8_t> all(packet);
  for (auto _ : state) {
    benchmark::DoNotOptimize(
        checksum(all.first(kDataHeaderBytes), all.subspan(kDataHeaderBytes), Coverage::kHeader));
  }
}
BENCHMARK(checksum_header);

}  // namespace
}  // namespace pacecar::wire
