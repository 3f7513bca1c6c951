// One of two programs that check each other's NICs: every operation in many sizes, both ways,
// byte for byte, with guards around the target; and refused writes, which must fail alone.
// Either side may have any kind of NIC; sends are checked if both are software NICs.
//
//   interop_peer --nic soft:raw:eth0 --server 18600
//   interop_peer --nic soft:udp:eth0 --client HOST:18600
//
// Prints one line per case and a summary; exit status 0 only if all passed.
#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tests/interop/channel.h"
#include "tests/interop/open_nic.h"
#include "transport/engine/clock.h"
#include "transport/nic/standard_nic.h"

namespace pacecar::test {
namespace {

constexpr Bytes kMaxSize = (1 << 20) + 1;
constexpr std::array<Bytes, 20> kSizes = {0,    1,     2,     3,     4,       5,       63,
                                          64,   65,    1023,  1024,  1025,    4095,    4096,
                                          4097, 65535, 65536, 65537, 1 << 20, kMaxSize};
constexpr Bytes kGuard = 4096;
constexpr uint8_t kGuardByte = 0xA5;
constexpr Duration kPatience = Duration::from_s(30);
// As connections share them: writes with immediate need no receive request.
constexpr QueuePairConfig kShared{.paced = false};
constexpr Bytes kRefusedSize = 3 * 4096 + 7;

// A side's verdict on a case.
constexpr uint8_t kBad = 0;
constexpr uint8_t kGood = 1;
constexpr uint8_t kBroken = 2;  // a queue pair is broken: the run ends

struct Kind {
  const char* name;
  Opcode opcode;
};
constexpr std::array<Kind, 4> kKinds = {{{"SEND", Opcode::kSend},
                                         {"WRITE", Opcode::kWrite},
                                         {"WRITE_WITH_IMM", Opcode::kWriteWithImm},
                                         {"READ", Opcode::kRead}}};

constexpr Kind kRefusal{"refusal", Opcode::kWriteWithImm};
constexpr int kRefusals = 3;

// What each side tells the other before the first case.
struct Hello {
  QueuePairAddress address;
  QueuePairAddress shared;
  uint64_t source = 0;
  uint64_t sink = 0;
  uint64_t locked = 0;
  uint32_t source_key = 0;
  uint32_t sink_key = 0;
  uint32_t locked_key = 0;
  bool sends = false;  // it has sends and receive requests
};

struct Case {
  Kind kind;
  Bytes size = 0;
  bool by_server = false;  // who posts the work request
  uint8_t seed = 0;
  bool refusal = false;

  uint32_t immediate() const { return 0xC0DE0000U | static_cast<uint32_t>(size & 0xFFFF); }
};

class Peer {
 public:
  Peer(NicPort& port, Channel channel, bool server)
      : port_(port),
        standard_(dynamic_cast<StandardNic*>(&port.nic())),
        channel_(std::move(channel)),
        server_(server),
        source_(kMaxSize),
        sink_(kMaxSize + 2 * kGuard),
        locked_(kRefusedSize, kGuardByte) {}

  Result<void> meet();
  // Whether both sides have sends.
  bool sends() const { return standard_ != nullptr && peer_.sends; }
  // Whether the case passed on both sides; an error ends the run.
  Result<bool> run(const Case& test);
  // The same for a write that is refused, between two that are not.
  Result<bool> run_refusal(const Case& test);

 private:
  // Exchanges the verdicts: whether the case is good on both sides.
  Result<bool> agree(bool good);
  Result<void> connect(QueuePairId id, const QueuePairAddress& peer);
  bool initiate_refusal(const Case& test);
  bool answer_refusal();
  void turn();
  Result<void> sync() {
    const uint8_t mine = 1;
    uint8_t theirs = 0;
    return channel_.exchange({&mine, 1}, {&theirs, 1}, [this] { turn(); });
  }
  void fill(const Case& test);
  bool post(const Case& test);
  bool post_receive(const Case& test);
  std::optional<Completion> wait();
  bool initiate(const Case& test);
  bool answer(const Case& test);
  bool sink_is_right(const Case& test, bool written) const;
  static uint8_t pattern(uint8_t seed, size_t i) {
    return static_cast<uint8_t>(seed + i * 7 + i / 251);
  }

  NicPort& port_;
  StandardNic* const standard_;  // null: an RDMA NIC, which has no sends and receive requests
  Channel channel_;
  bool server_;
  std::vector<uint8_t> source_;
  std::vector<uint8_t> sink_;
  std::vector<uint8_t> locked_;  // the other side may not write to it
  MemoryRegion source_region_;
  MemoryRegion sink_region_;
  MemoryRegion locked_region_;
  QueuePairId queue_pair_ = 0;
  QueuePairId shared_ = 0;
  Hello peer_;
  std::vector<Completion> completions_;
  bool broken_ = false;
};

void Peer::turn() {
  const Instant now = clock_now();
  while (port_.receive(now) > 0) {
  }
  port_.on_time(now);
  while (port_.transmit(now) > 0) {
  }
  std::array<Completion, 8> some;
  const size_t count = port_.nic().poll(some);
  for (const Completion& completion : std::span(some).first(count)) {
    broken_ |= completion.kind == CompletionKind::kBroken;
  }
  completions_.insert(completions_.end(), some.begin(), some.begin() + static_cast<long>(count));
}

Result<void> Peer::meet() {
  Nic& nic = port_.nic();
  const auto source = nic.register_memory(source_.data(), source_.size(), Access::kRemoteAll);
  if (!source) return tl::unexpected(source.error());
  const auto sink = nic.register_memory(sink_.data(), sink_.size(), Access::kRemoteAll);
  if (!sink) return tl::unexpected(sink.error());
  const auto locked = nic.register_memory(locked_.data(), locked_.size(), Access::kLocalRead);
  if (!locked) return tl::unexpected(locked.error());
  source_region_ = *source;
  sink_region_ = *sink;
  locked_region_ = *locked;
  const auto created =
      nic.create_queue_pair({.paced = false, .receives = standard_ != nullptr ? 4U : 0U});
  if (!created) return tl::unexpected(created.error());
  const auto shared = nic.create_queue_pair(kShared);
  if (!shared) return tl::unexpected(shared.error());
  queue_pair_ = *created;
  shared_ = *shared;
  const Hello mine{.address = nic.queue_pair_address(queue_pair_),
                   .shared = nic.queue_pair_address(shared_),
                   .source = source_region_.remote_address,
                   .sink = sink_region_.remote_address,
                   .locked = locked_region_.remote_address,
                   .source_key = source_region_.key,
                   .sink_key = sink_region_.key,
                   .locked_key = locked_region_.key,
                   .sends = standard_ != nullptr};
  std::array<uint8_t, sizeof(Hello)> out;
  std::array<uint8_t, sizeof(Hello)> in;
  std::memcpy(out.data(), &mine, sizeof mine);
  const auto idle = [this] { turn(); };
  if (auto met = channel_.exchange(out, in, idle); !met) return met;
  std::memcpy(&peer_, in.data(), sizeof peer_);
  return connect(queue_pair_, peer_.address)
      .and_then([&] { return connect(shared_, peer_.shared); })
      .and_then([&] { return sync(); });
}

Result<void> Peer::connect(QueuePairId id, const QueuePairAddress& peer) {
  const size_t bytes = std::min<size_t>(peer.size, peer.bytes.size());
  return port_.nic().connect_queue_pair(id, std::span(peer.bytes).first(bytes));
}

void Peer::fill(const Case& test) {
  for (size_t i = 0; i < test.size; ++i) source_[i] = pattern(test.seed, i);
  std::ranges::fill(sink_, kGuardByte);
  completions_.clear();
}

bool Peer::post(const Case& test) {
  const bool read = test.kind.opcode == Opcode::kRead;
  const WorkRequest work_request{
      .id = test.seed,
      .local = read ? &sink_[kGuard] : source_.data(),
      .remote = read ? peer_.source : peer_.sink + kGuard,
      .length = test.size,
      .local_key = read ? sink_region_.key : source_region_.key,
      .remote_key = read ? peer_.source_key : peer_.sink_key,
      .immediate = test.kind.opcode == Opcode::kWriteWithImm ? test.immediate() : 0,
      .opcode = test.kind.opcode};
  return port_.nic().post(queue_pair_, {&work_request, 1}) == 1;
}

bool Peer::post_receive(const Case& test) {
  const bool send = test.kind.opcode == Opcode::kSend;
  if (standard_ == nullptr || (!send && test.kind.opcode != Opcode::kWriteWithImm)) return true;
  const ReceiveRequest request{.id = 1000U + test.seed,
                               .local = &sink_[kGuard],
                               .length = send ? test.size : 0,
                               .local_key = sink_region_.key};
  return standard_->post_receives(queue_pair_, {&request, 1}) == 1;
}

std::optional<Completion> Peer::wait() {
  const Instant limit = clock_now() + kPatience;
  while (completions_.empty() && !broken_ && clock_now() < limit) turn();
  if (completions_.empty()) return std::nullopt;
  const Completion first = completions_.front();
  completions_.erase(completions_.begin());
  return first;
}

bool Peer::initiate(const Case& test) {
  if (!post(test)) return false;
  const auto done = wait();
  if (!done || done->kind != CompletionKind::kSent || done->status != CompletionStatus::kOk) {
    std::printf("  completion: %s, kind %d, status %d %s\n", done ? "error" : "none",
                done ? static_cast<int>(done->kind) : -1,
                done ? static_cast<int>(done->status) : -1, port_.nic().fault(queue_pair_).c_str());
    return false;
  }
  return done->work_request == test.seed;
}

// Checks the completion that the other side's operation must bring here.
bool Peer::answer(const Case& test) {
  const bool send = test.kind.opcode == Opcode::kSend;
  if (!send && test.kind.opcode != Opcode::kWriteWithImm) return true;
  const auto received = wait();
  return received && received->status == CompletionStatus::kOk &&
         received->kind == (send ? CompletionKind::kReceivedSend : CompletionKind::kReceived) &&
         received->work_request == (standard_ == nullptr ? 0 : 1000U + test.seed) &&
         received->bytes == test.size && (send || received->immediate == test.immediate());
}

bool Peer::sink_is_right(const Case& test, bool written) const {
  for (size_t i = 0; i < sink_.size(); ++i) {
    const bool inside = written && i >= kGuard && i < kGuard + test.size;
    if (sink_[i] != (inside ? pattern(test.seed, i - kGuard) : kGuardByte)) {
      std::printf("  byte %ld of %zu is wrong\n", static_cast<long>(i) - static_cast<long>(kGuard),
                  test.size);
      return false;
    }
  }
  return true;
}

Result<bool> Peer::run(const Case& test) {
  fill(test);
  const bool initiator = test.by_server == server_;
  const bool ready = initiator || post_receive(test);
  if (auto met = sync(); !met) return tl::unexpected(met.error());
  bool good = ready && (initiator ? initiate(test) : answer(test));
  if (auto met = sync(); !met) return tl::unexpected(met.error());
  const bool written = initiator == (test.kind.opcode == Opcode::kRead);
  return agree(sink_is_right(test, written) && completions_.empty() && good);
}

Result<bool> Peer::agree(bool good) {
  const uint8_t mine = broken_ ? kBroken : good ? kGood : kBad;
  uint8_t theirs = kBad;
  const auto idle = [this] { turn(); };
  if (auto met = channel_.exchange({&mine, 1}, {&theirs, 1}, idle); !met) {
    return tl::unexpected(met.error());
  }
  if (mine == kBroken || theirs == kBroken) {
    const std::string why = port_.nic().fault(queue_pair_) + port_.nic().fault(shared_);
    return fail(ErrorCode::kPeer, why.empty() ? "the other side's queue pair is broken" : why);
  }
  return mine == kGood && theirs == kGood;
}

bool Peer::initiate_refusal(const Case& test) {
  const WorkRequest first{.id = 1,
                          .local = source_.data(),
                          .remote = peer_.sink + kGuard,
                          .length = test.size,
                          .local_key = source_region_.key,
                          .remote_key = peer_.sink_key,
                          .immediate = 1,
                          .opcode = Opcode::kWriteWithImm};
  WorkRequest refused = first;
  refused.id = refused.immediate = 2;
  refused.remote = peer_.locked;
  refused.remote_key = peer_.locked_key;
  WorkRequest last = first;
  last.id = last.immediate = 3;
  bool good = true;
  for (const WorkRequest& request : {first, refused, last}) {
    good &= port_.nic().post(shared_, {&request, 1}) == 1;
  }
  for (const WorkRequest& request : {first, refused, last}) {
    const auto done = wait();
    const bool is_refused = request.id == refused.id;
    good &=
        done && done->work_request == request.id &&
        done->status == (is_refused ? CompletionStatus::kRemoteAccessError : CompletionStatus::kOk);
  }
  return good;
}

bool Peer::answer_refusal() {
  bool good = true;
  for (const uint32_t immediate : {1U, 3U}) {
    const auto received = wait();
    good &=
        received && received->kind == CompletionKind::kReceived && received->immediate == immediate;
  }
  return good && std::ranges::all_of(locked_, [](uint8_t byte) { return byte == kGuardByte; });
}

Result<bool> Peer::run_refusal(const Case& test) {
  fill(test);
  if (auto met = sync(); !met) return tl::unexpected(met.error());
  const bool initiator = test.by_server == server_;
  const bool good = initiator ? initiate_refusal(test) : answer_refusal();
  if (auto met = sync(); !met) return tl::unexpected(met.error());
  return agree(sink_is_right(test, !initiator) && completions_.empty() && good);
}

std::vector<Case> all_cases(bool sends) {
  std::vector<Case> cases;
  uint8_t seed = 0;
  const auto add = [&](const Kind& kind, Bytes size, bool refusal) {
    for (const bool by_server : {false, true}) {
      cases.push_back({kind, size, by_server, ++seed, refusal});
    }
  };
  for (const Kind& kind : kKinds) {
    if (kind.opcode == Opcode::kSend && !sends) continue;
    for (const Bytes size : kSizes) add(kind, size, false);
  }
  for (int round = 0; round < kRefusals; ++round) add(kRefusal, kRefusedSize, true);
  return cases;
}

int run_all(Peer& peer) {
  unsigned passed = 0;
  unsigned failed = 0;
  for (const Case& test : all_cases(peer.sends())) {
    const auto good = test.refusal ? peer.run_refusal(test) : peer.run(test);
    if (!good) {
      std::printf("%s\n%u passed, %u failed\n", good.error().message.c_str(), passed, failed + 1);
      return 1;
    }
    std::printf("%-14s %8zu bytes by the %s: %s\n", test.kind.name, test.size,
                test.by_server ? "server" : "client", *good ? "passed" : "FAILED");
    ++(*good ? passed : failed);
  }
  std::printf("%u passed, %u failed\n", passed, failed);
  return failed == 0 ? 0 : 1;
}

struct Options {
  std::string nic;
  std::string host;  // empty: server
  uint16_t port = 0;
};

std::optional<Options> parse(std::span<char* const> arguments) {
  Options options;
  for (size_t i = 1; i + 1 < arguments.size(); i += 2) {
    const std::string flag = arguments[i];
    std::string value = arguments[i + 1];
    if (flag == "--nic") {
      options.nic = value;
      continue;
    }
    if (flag == "--client") {
      const size_t colon = value.rfind(':');
      if (colon == std::string::npos) return std::nullopt;
      options.host = value.substr(0, colon);
      value.erase(0, colon + 1);
    } else if (flag != "--server") {
      return std::nullopt;
    }
    options.port = static_cast<uint16_t>(std::atoi(value.c_str()));
  }
  if (options.nic.empty() || options.port == 0) return std::nullopt;
  return options;
}

int fail_with(const Error& error) {
  std::fprintf(stderr, "interop_peer: %s\n", error.message.c_str());
  return 1;
}

int main_of(std::span<char* const> arguments) {
  const auto options = parse(arguments);
  if (!options) {
    std::fprintf(stderr,
                 "usage: interop_peer --nic NIC (--server PORT | --client HOST:PORT), with a NIC "
                 "such as soft:raw:eth0\n");
    return 2;
  }
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  auto port = open_nic(options->nic);
  if (!port) return fail_with(port.error());
  const bool server = options->host.empty();
  auto channel =
      server ? Channel::listen(options->port) : Channel::connect(options->host, options->port);
  if (!channel) return fail_with(channel.error());
  Peer peer(**port, std::move(*channel), server);
  if (const auto met = peer.meet(); !met) return fail_with(met.error());
  return run_all(peer);
}

}  // namespace
}  // namespace pacecar::test

int main(int argc, char** argv) {
  return pacecar::test::main_of({argv, static_cast<size_t>(argc)});
}
