// incast_peer: one end of an N-to-1 measurement over Pacecar's C++ interface. The receiver receives
// from --senders senders in one process, as an NCCL rank does, so that its allocator divides the
// link. It posts no buffer before all senders have connected, so that they start together. Several
// receivers start together at the time in --start-file. Both roles sleep between polls: with few
// CPUs, a process that spins delays the others (use PACECAR_PROGRESS=thread).
//
// A sender stops --warm-up + --seconds after its first message, with a message of size 0. Each end
// prints one line of JSON; times are CLOCK_MONOTONIC in seconds.
#include <fmt/format.h>
#include <time.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/cli/clock.h"
#include "bench/cli/files.h"
#include "bench/cli/must.h"
#include "bench/perf/message_buffer.h"
#include "transport/api/pacecar.hpp"
#include "transport/wire/checksum.h"
#include "transport/wire/extended.h"

namespace pacecar {
namespace {

using Json = nlohmann::json;
using cli::duration_of;
using cli::steady_now;
using perf::MessageBuffer;

constexpr size_t kNic = 0;  // the first one of PACECAR_NICS
constexpr int kTag = 0;
constexpr size_t kMessageBytes = 128 << 10;
constexpr uint32_t kInFlight = 8;
constexpr Duration kSetUpLimit = Duration::from_s(20);
// How long senders continue after the measurement window, so that none stops within it.
constexpr Duration kMargin = Duration::from_ms(300);
// Per data packet: preamble, Ethernet header, FCS and gap; IPv4; UDP; our header and checksum.
constexpr size_t kPacketOverhead = 38 + 20 + 8 + wire::kDataHeaderBytes + wire::kChecksumBytes;

struct Settings {
  uint32_t senders = 4;
  int64_t poll_us = 200;
  std::string handle_file;
  std::string start_file;  // empty: a receiver starts when all senders have connected
  double warm_up_s = 1;
  double seconds = 5;
};

double to_seconds(Instant time) { return (time - Instant()).seconds(); }

void rest(const Settings& settings) {
  const timespec span{0, Duration::from_us(settings.poll_us).ns()};
  nanosleep(&span, nullptr);
}

// Polls until `done` returns something true, and returns that; `otherwise`: why it never does.
template <typename Done>
auto wait_for(const Settings& settings, const Done& done, const std::string& otherwise) {
  for (const Instant limit = steady_now() + kSetUpLimit; steady_now() < limit; rest(settings)) {
    if (auto result = done()) return result;
  }
  give_up(otherwise);
}

// The requests of one connection, oldest first; request n uses slot n modulo their number.
template <typename Connection>
class InFlight {
 public:
  InFlight(Context& context, std::unique_ptr<Connection> connection)
      : buffer_(must(MessageBuffer::create(context, kNic, kMessageBytes, kInFlight))),
        connection_(std::move(connection)) {}

  Connection& connection() { return *connection_; }
  bool idle() const { return started_ == done_; }
  bool full() const { return started_ - done_ == requests_.size(); }
  std::span<uint8_t> next_slot() const { return buffer_.slot(started_ % requests_.size()); }
  const Memory* memory() const { return buffer_.memory(); }
  // False if isend or irecv returned null: all requests are in use.
  bool add(Request* request) {
    if (request == nullptr) return false;
    requests_[started_++ % requests_.size()] = request;
    return true;
  }
  // Whether the oldest request is done; it is then removed. `size`: of a received message.
  bool take(size_t* size = nullptr) {
    if (idle()) return false;
    const TestResult result = must(connection_->test(requests_[done_ % requests_.size()]));
    if (!result.done) return false;
    if (size != nullptr) *size = result.sizes[0];
    ++done_;
    return true;
  }

 private:
  MessageBuffer buffer_;  // outlives the connection, which uses it
  std::unique_ptr<Connection> connection_;
  std::array<Request*, kInFlight> requests_{};
  uint64_t started_ = 0;
  uint64_t done_ = 0;
};

// The throughput of one sender, measured from the end of the last message before the window to the
// end of the first one after it. So a message or a pause at an edge of the window counts in full.
struct Meter {
  Instant begin;  // of the window
  Instant end;
  Instant first;
  Instant last;
  uint64_t bytes = 0;

  void count(Instant now, size_t size) {
    if (last >= end) return;
    last = now;
    if (now < begin) {
      first = now;
    } else {
      bytes += size;
    }
  }
  double gbps() const {
    return bytes == 0 ? 0 : static_cast<double>(bytes) * 8 / (last - first).seconds() * 1e-9;
  }
};

struct Stream {
  InFlight<ReceiveConnection> requests;
  Meter meter;
  bool ended = false;

  void post() {
    while (!requests.full()) {
      const auto slot = requests.next_slot();
      const ReceiveBuffer buffer{slot.data(), slot.size(), kTag, requests.memory()};
      if (!requests.add(must(requests.connection().irecv({&buffer, 1})))) return;
    }
  }
  void poll() {
    size_t size = 0;
    while (!ended && requests.take(&size)) {
      ended = size == 0;
      if (!ended) meter.count(steady_now(), size);
    }
    if (!ended) post();
  }
};

void write_handle(const Handle& handle, const std::string& path) {
  // Renamed when it is complete, so that a reader never finds an incomplete file.
  const std::string unfinished = path + ".unfinished";
  must(cli::write_text(unfinished,
                       {reinterpret_cast<const char*>(handle.bytes.data()), Handle::kBytes}));
  if (std::rename(unfinished.c_str(), path.c_str()) != 0) {
    give_up(fmt::format("cannot write {}: name a file that this user can make", path));
  }
}

Handle read_handle(const std::string& path) {
  Handle handle;
  std::ifstream file(path, std::ios::binary);
  file.read(reinterpret_cast<char*>(handle.bytes.data()), Handle::kBytes);
  if (!file) give_up(fmt::format("{} holds no handle: start the receiver first", path));
  return handle;
}

std::vector<Stream> accept_all(Context& context, const Settings& settings) {
  const auto listener = must(context.listen(kNic));
  write_handle(listener->handle(), settings.handle_file);
  std::vector<Stream> streams;
  while (streams.size() < settings.senders) {
    auto joined = wait_for(
        settings, [&] { return must(listener->accept()); },
        fmt::format("only {} of {} senders have connected", streams.size(), settings.senders));
    streams.push_back({{context, std::move(joined)}, {}, false});
  }
  return streams;
}

// The time at which to post buffers: now, or that in --start-file, which is written when all
// receivers have reported that their senders have connected.
Instant wait_for_start(const Settings& settings) {
  if (settings.start_file.empty()) return steady_now();
  std::ofstream(settings.handle_file + ".joined").flush();
  double start_s = 0;
  wait_for(
      settings, [&] { return static_cast<bool>(std::ifstream(settings.start_file) >> start_s); },
      fmt::format("{} was not written: another receiver failed", settings.start_file));
  const Instant start = std::min(Instant() + duration_of(start_s), steady_now() + kSetUpLimit);
  while (steady_now() < start) rest(settings);
  return start;
}

Json receive(const Settings& settings) {
  const auto context = must(Context::open({}));
  std::vector<Stream> streams = accept_all(*context, settings);
  const Instant start = wait_for_start(settings);
  const Instant begin = start + duration_of(settings.warm_up_s);
  const Instant end = begin + duration_of(settings.seconds);
  for (Stream& stream : streams) stream.meter = {begin, end, start, start};
  while (!std::ranges::all_of(streams, &Stream::ended)) {
    for (Stream& stream : streams) stream.poll();
    rest(settings);
  }
  Json result = {{"begin_s", to_seconds(begin)},
                 {"end_s", to_seconds(end)},
                 {"packet_payload_bytes", context->nics()[kNic].mtu_bytes},
                 {"packet_overhead_bytes", kPacketOverhead},
                 {"senders_gbps", Json::array()}};
  for (const Stream& stream : streams) result["senders_gbps"].push_back(stream.meter.gbps());
  return result;
}

Json send(const Settings& settings) {
  const auto context = must(Context::open({}));
  const auto connecting = must(context->connect(kNic, read_handle(settings.handle_file)));
  auto joined = wait_for(
      settings, [&] { return must(connecting->poll()); }, "the receiver does not answer");
  InFlight<SendConnection> requests(*context, std::move(joined));
  const Duration length = duration_of(settings.warm_up_s + settings.seconds) + kMargin;
  Instant stop = Instant::never();
  bool ended = false;
  while (!ended || !requests.idle()) {
    while (requests.take()) {
      if (stop == Instant::never()) stop = steady_now() + length;
    }
    while (!ended && !requests.full()) {
      const bool last = steady_now() >= stop;
      const auto slot = requests.next_slot();
      if (!requests.add(must(requests.connection().isend(slot.data(), last ? 0 : slot.size(), kTag,
                                                         requests.memory())))) {
        break;
      }
      ended = last;
    }
    rest(settings);
  }
  return {{"packets_retransmitted", context->statistics(kNic).packets_retransmitted}};
}

int run(int argc, char** argv) {
  Settings settings;
  CLI::App app{
      "One end of an N-to-1 measurement; prints JSON. PACECAR_* choose NIC and algorithm."};
  app.require_subcommand(1);
  app.fallthrough();
  app.add_option("--handle-file", settings.handle_file, "File for the receiver's handle")
      ->required();
  app.add_option("--poll", settings.poll_us, "Microseconds between two polls")
      ->check(CLI::Range(1, 999'999));
  app.add_option("--warm-up", settings.warm_up_s, "Seconds before the measurement")
      ->check(CLI::Range(0.01, 60.0));
  app.add_option("--seconds", settings.seconds, "Seconds of the measurement")
      ->check(CLI::Range(0.01, 3600.0));
  auto* receiver = app.add_subcommand("receive", "Receives from the senders");
  receiver->add_option("--senders", settings.senders, "How many")->check(CLI::Range(1, 64));
  receiver->add_option("--start-file", settings.start_file,
                       "The receiver makes HANDLE_FILE.joined when all senders have connected, "
                       "and starts at the time in this file (CLOCK_MONOTONIC, in seconds)");
  app.add_subcommand("send", "Sends to the receiver");
  CLI11_PARSE(app, argc, argv);
  fmt::print("{}\n", (receiver->parsed() ? receive(settings) : send(settings)).dump());
  return 0;
}

}  // namespace
}  // namespace pacecar

int main(int argc, char** argv) { return pacecar::run(argc, argv); }
