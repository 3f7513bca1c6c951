// ofi_stream: measures what a libfabric provider can do without a protocol above it. The figures of
// Pacecar's NIC over that provider are compared with these.
//
//   ofi_stream --provider tcp --size 1M --in-flight 8    Gb/s of a stream of writes with CQ data
//   ofi_stream --provider tcp --ping                     half a round trip of 8 injected bytes
//
// Forks its own receiver; both spin, each on one reliable-datagram endpoint. Prints a line of JSON.
#include <fmt/format.h>
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "transport/base/histogram.h"
#include "transport/ofi/provider.h"

namespace pacecar {
namespace {

constexpr size_t kAddressBytes = 128;
constexpr size_t kPollEntries = 16;
constexpr size_t kPageBytes = 4096;
constexpr unsigned kSetUpSeconds = 30;  // limit of connecting and ending
constexpr uint64_t kEndOfPing = ~uint64_t{0};

struct Settings {
  std::string provider = "tcp";
  std::string address = "127.0.0.1";
  size_t size = 1 << 20;
  size_t in_flight = 8;
  double seconds = 2;
  std::vector<size_t> cpus;  // of the receiver and of the sender
  bool ping = false;
};

// Without destructors: libfabric's would run in both processes.
[[noreturn]] void give_up(const std::string& sentence) {
  fmt::print(stderr, "ofi_stream: {}\n", sentence);
  std::_Exit(2);
}

// `result` is libfabric's: 0, a count, or a negative error.
ssize_t must(const char* what, ssize_t result) {
  if (result < 0) give_up(fmt::format("{}: {}", what, fi_strerror(static_cast<int>(-result))));
  return result;
}

int64_t now_ns() { return std::chrono::steady_clock::now().time_since_epoch().count(); }

using InfoOwner = std::unique_ptr<fi_info, decltype(&fi_freeinfo)>;

// The address and the memory key of an endpoint, for its peer.
struct Card {
  std::array<uint8_t, kAddressBytes> address{};
  uint64_t base = 0;
  uint64_t key = 0;
};

InfoOwner find_provider(const Settings& settings) {
  const InfoOwner hints(fi_allocinfo(), &fi_freeinfo);
  hints->caps = FI_RMA;
  hints->tx_attr->msg_order = FI_ORDER_WAW;  // notifications are written after the writes
  hints->ep_attr->type = FI_EP_RDM;
  hints->domain_attr->mr_mode =
      FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_ENDPOINT;
  hints->domain_attr->threading = FI_THREAD_DOMAIN;
  hints->fabric_attr->prov_name = strdup(settings.provider.c_str());
  const bool has_address = settings.provider != "shm" && !settings.address.empty();
  fi_info* found = nullptr;
  const int result = fi_getinfo(FI_VERSION(1, 17), has_address ? settings.address.c_str() : nullptr,
                                nullptr, has_address ? FI_SOURCE : 0, hints.get(), &found);
  if (result != 0) {
    give_up(
        fmt::format("no reliable-datagram endpoints with RMA from provider '{}' at '{}' ({}): "
                    "look what `fi_info -t FI_EP_RDM` lists",
                    settings.provider, settings.address, fi_strerror(-result)));
  }
  return {found, &fi_freeinfo};
}

// One endpoint with one completion queue and one memory region.
class Nic {
 public:
  // The result of a poll: completed own writes, and the peer's writes with CQ data.
  struct Completions {
    uint64_t sent = 0;
    uint64_t received = 0;
  };

  Nic(const Settings& settings, size_t memory_bytes)
      : memory_(static_cast<uint8_t*>(std::aligned_alloc(kPageBytes, memory_bytes)), &std::free),
        memory_bytes_(memory_bytes),
        info_(find_provider(settings)) {
    if (!memory_) give_up("no memory for so many writes of this size: ask for less");
    std::memset(memory_.get(), 0, memory_bytes_);
    open(fabric_, "fi_fabric",
         [&](fid_fabric** out) { return fi_fabric(info_->fabric_attr, out, nullptr); });
    open(domain_, "fi_domain",
         [&](fid_domain** out) { return fi_domain(fabric_.get(), info_.get(), out, nullptr); });
    fi_cq_attr queue{.size = 4 * settings.in_flight + 64, .format = FI_CQ_FORMAT_DATA};
    open(queue_, "fi_cq_open",
         [&](fid_cq** out) { return fi_cq_open(domain_.get(), &queue, out, nullptr); });
    fi_av_attr addresses{};
    open(addresses_, "fi_av_open",
         [&](fid_av** out) { return fi_av_open(domain_.get(), &addresses, out, nullptr); });
    open(endpoint_, "fi_endpoint",
         [&](fid_ep** out) { return fi_endpoint(domain_.get(), info_.get(), out, nullptr); });
    must("fi_ep_bind", fi_ep_bind(endpoint_.get(), &queue_->fid, FI_TRANSMIT | FI_RECV));
    must("fi_ep_bind", fi_ep_bind(endpoint_.get(), &addresses_->fid, 0));
    must("fi_enable", fi_enable(endpoint_.get()));
    register_memory();
  }

  const char* provider() const { return info_->fabric_attr->prov_name; }
  uint8_t* memory() { return memory_.get(); }

  Card card() {
    Card card;
    size_t bytes = card.address.size();
    must("fi_getname", fi_getname(&endpoint_->fid, card.address.data(), &bytes));
    card.base = mode(FI_MR_VIRT_ADDR) ? reinterpret_cast<uint64_t>(memory_.get()) : 0;
    card.key = fi_mr_key(region_.get());
    return card;
  }

  void connect(const Card& peer) {
    peer_ = peer;
    if (fi_av_insert(addresses_.get(), peer_.address.data(), 1, &peer_address_, 0, nullptr) != 1) {
      give_up("fi_av_insert refused the peer's address");
    }
  }

  // Writes to the same offset in the peer's memory; the peer gets a completion with `data`. False:
  // poll completions first.
  bool write(size_t offset, size_t size, uint64_t data) {
    const ssize_t result =
        fi_writedata(endpoint_.get(), memory_.get() + offset, size, fi_mr_desc(region_.get()), data,
                     peer_address_, peer_.base + offset, peer_.key, &contexts_[data % kContexts]);
    return result != -FI_EAGAIN && must("fi_writedata", result) == 0;
  }

  // Writes 8 bytes to the start of the peer's memory, without a completion.
  void inject(uint64_t word) {
    for (;;) {
      const ssize_t result = fi_inject_write(endpoint_.get(), &word, sizeof word, peer_address_,
                                             peer_.base, peer_.key);
      if (result != -FI_EAGAIN) {
        must("fi_inject_write", result);
        return;
      }
      poll();
    }
  }

  Completions poll() {
    std::array<fi_cq_data_entry, kPollEntries> entries;
    const ssize_t count = fi_cq_read(queue_.get(), entries.data(), entries.size());
    Completions found;
    if (count == -FI_EAGAIN) return found;
    if (count == -FI_EAVAIL) fail();
    must("fi_cq_read", count);
    for (size_t i = 0; i < static_cast<size_t>(count); ++i) {
      ++((entries[i].flags & FI_REMOTE_CQ_DATA) != 0 ? found.received : found.sent);
    }
    return found;
  }

 private:
  static constexpr size_t kContexts = 4096;

  template <typename Object, typename Function>
  static void open(FidHandle<Object>& owned, const char* what, Function function) {
    Object* object = nullptr;
    must(what, function(&object));
    owned.reset(object);
  }

  bool mode(int bit) const { return (info_->domain_attr->mr_mode & bit) != 0; }

  void register_memory() {
    open(region_, "fi_mr_reg", [&](fid_mr** out) {
      return fi_mr_reg(domain_.get(), memory_.get(), memory_bytes_, FI_WRITE | FI_REMOTE_WRITE, 0,
                       1, 0, out, nullptr);
    });
    if (mode(FI_MR_ENDPOINT)) {
      must("fi_mr_bind", fi_mr_bind(region_.get(), &endpoint_->fid, 0));
      must("fi_mr_enable", fi_mr_enable(region_.get()));
    }
  }

  [[noreturn]] void fail() {
    fi_cq_err_entry error{};
    must("fi_cq_readerr", fi_cq_readerr(queue_.get(), &error, 0));
    give_up(
        fmt::format("a write failed: {}, {}", fi_strerror(error.err),
                    fi_cq_strerror(queue_.get(), error.prov_errno, error.err_data, nullptr, 0)));
  }

  std::unique_ptr<uint8_t, decltype(&std::free)> memory_;
  const size_t memory_bytes_;
  const InfoOwner info_;
  FidHandle<fid_fabric> fabric_;
  FidHandle<fid_domain> domain_;
  FidHandle<fid_cq> queue_;
  FidHandle<fid_av> addresses_;
  FidHandle<fid_mr> region_;
  FidHandle<fid_ep> endpoint_;
  std::array<fi_context2, kContexts> contexts_;  // some providers need them
  Card peer_;
  fi_addr_t peer_address_ = FI_ADDR_UNSPEC;
};

template <typename Value>
void send_value(int peer, const Value& value) {
  if (send(peer, &value, sizeof value, MSG_NOSIGNAL) != sizeof value) {
    give_up("the other process has ended");
  }
}

// Polls `nic`, so that operations progress, until the other process has sent its value.
template <typename Value>
Value ask(int peer, Nic& nic) {
  Value value;
  for (;;) {
    const ssize_t got = recv(peer, &value, sizeof value, MSG_DONTWAIT);
    if (got == sizeof value) return value;
    if (got >= 0 || errno != EAGAIN) give_up("the other process has ended");
    nic.poll();
  }
}

struct Stream {
  uint64_t writes = 0;  // after the first, at whose arrival the clock starts
  int64_t ns = 0;
};

void receive_stream(Nic& nic, int peer) {
  uint64_t writes = 0;
  uint64_t expected = std::numeric_limits<uint64_t>::max();
  int64_t first = 0;
  int64_t last = 0;
  while (writes < expected) {
    const uint64_t arrived = nic.poll().received;
    if (arrived > 0) {
      last = now_ns();
      if (first == 0) first = last;
      writes += arrived;
    } else {
      // The sender sends the number of its writes when they have completed.
      if (recv(peer, &expected, sizeof expected, MSG_DONTWAIT) == 0) return;
    }
  }
  send_value(peer, Stream{.writes = writes - 1, .ns = last - first});
}

void send_stream(Nic& nic, int peer, const Settings& settings) {
  uint64_t posted = 0;
  uint64_t complete = 0;
  const int64_t end = now_ns() + static_cast<int64_t>(settings.seconds * 1e9);
  while (now_ns() < end || posted < 2) {
    while (posted < complete + settings.in_flight &&
           nic.write(posted % settings.in_flight * settings.size, settings.size, posted)) {
      ++posted;
    }
    complete += nic.poll().sent;
  }
  while (complete < posted) complete += nic.poll().sent;
  send_value(peer, posted);
  const auto stream = ask<Stream>(peer, nic);
  const double gbps =
      static_cast<double>(stream.writes * settings.size) * 8 / static_cast<double>(stream.ns);
  fmt::print(
      R"({{"provider": "{}", "mode": "stream", "size": {}, "in_flight": {}, "gbps": {:.3f}}})"
      "\n",
      nic.provider(), settings.size, settings.in_flight, gbps);
}

// Waits until the first 8 bytes of the memory differ from `last`.
uint64_t next_word(Nic& nic, uint64_t last) {
  const std::atomic_ref<uint64_t> word(*reinterpret_cast<uint64_t*>(nic.memory()));
  for (;;) {
    const uint64_t value = word.load(std::memory_order_acquire);
    if (value != last) return value;
    nic.poll();
  }
}

void answer_pings(Nic& nic, int peer) {
  uint64_t word = 0;
  while (word != kEndOfPing) {
    word = next_word(nic, word);
    nic.inject(word);
  }
  send_value(peer, word);
}

void send_pings(Nic& nic, int peer, const Settings& settings) {
  Histogram half_trips;
  uint64_t word = 0;
  const auto turn = [&](uint64_t next) {
    const int64_t start = now_ns();
    nic.inject(next);
    word = next_word(nic, word);
    if (word != next) give_up("the answer to a ping has another number");
    return static_cast<uint64_t>(now_ns() - start) / 2;
  };
  turn(1);  // connects
  const int64_t end = now_ns() + static_cast<int64_t>(settings.seconds * 1e9);
  while (now_ns() < end || half_trips.count() == 0) half_trips.record(turn(word + 1));
  turn(kEndOfPing);
  ask<uint64_t>(peer, nic);
  fmt::print(
      R"({{"provider": "{}", "mode": "ping", "pings": {}, "half_us": {:.2f}, "p99_us": {:.2f}}})"
      "\n",
      nic.provider(), half_trips.count(),
      static_cast<double>(half_trips.value_at_percentile(50)) / 1e3,
      static_cast<double>(half_trips.value_at_percentile(99)) / 1e3);
}

void pin(const Settings& settings, bool sends) {
  if (settings.cpus.empty()) return;
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  CPU_SET(settings.cpus[sends ? 1 : 0], &cpus);
  if (sched_setaffinity(0, sizeof cpus, &cpus) != 0) {
    give_up("this process cannot choose its processor: give others with --cpus");
  }
}

void run(const Settings& settings, int peer, bool sends) {
  alarm(kSetUpSeconds + static_cast<unsigned>(settings.seconds));
  pin(settings, sends);
  const size_t bytes = std::max(kPageBytes, settings.size * settings.in_flight);
  Nic nic(settings, (bytes + kPageBytes - 1) / kPageBytes * kPageBytes);
  send_value(peer, nic.card());
  nic.connect(ask<Card>(peer, nic));
  if (sends) {
    settings.ping ? send_pings(nic, peer, settings) : send_stream(nic, peer, settings);
    send_value(peer, true);  // now the receiver may close its endpoint
  } else {
    settings.ping ? answer_pings(nic, peer) : receive_stream(nic, peer);
    ask<bool>(peer, nic);
  }
}

// Returns the exit code.
int measure(const Settings& settings) {
  std::array<int, 2> peers{};
  if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, peers.data()) != 0) give_up("no socket pair");
  const pid_t receiver = fork();
  if (receiver < 0) give_up("no second process");
  if (receiver == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    close(peers[0]);
    run(settings, peers[1], false);
    std::_Exit(0);
  }
  close(peers[1]);
  run(settings, peers[0], true);
  int status = 0;
  waitpid(receiver, &status, 0);
  return status == 0 ? 0 : 2;
}

}  // namespace
}  // namespace pacecar

int main(int argc, char** argv) {
  pacecar::Settings settings;
  CLI::App app("Measures what a libfabric provider can do without a protocol above it.");
  app.add_option("--provider", settings.provider, "tcp, shm, udp;ofi_rxd, verbs;ofi_rxm");
  app.add_option("--address", settings.address, "of both ends; shm has none");
  app.add_option("--size", settings.size, "of a write, such as 64K")
      ->transform(CLI::AsSizeValue(false))
      ->check(CLI::Range(size_t{1}, size_t{1} << 30));
  app.add_option("--in-flight", settings.in_flight, "writes")->check(CLI::Range(1, 1024));
  app.add_option("--seconds", settings.seconds)->check(CLI::Range(0.001, 3600.));
  app.add_option("--cpus", settings.cpus, "of receiver and sender")->delimiter(',')->expected(2);
  app.add_flag("--ping", settings.ping, "half a round trip of 8 bytes, polled in memory");
  CLI11_PARSE(app, argc, argv);
  return pacecar::measure(settings);
}
