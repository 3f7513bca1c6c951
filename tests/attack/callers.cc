#include "tests/attack/callers.h"

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <fstream>
#include <sstream>
#include <utility>

#include "tests/attack/attack.h"
#include "transport/engine/bootstrap/wire.h"

namespace pacecar::attack {
namespace {

constexpr size_t kMostCallers = 500;
constexpr std::string_view kListening = "0A";  // the state LISTEN in /proc/net/tcp

// Parses "0100007F:4853": s_addr as a number, and a port.
sockaddr_in parse(const std::string& text) {
  sockaddr_in name{};
  name.sin_family = AF_INET;
  uint16_t port = 0;
  std::from_chars(text.data(), text.data() + 8, name.sin_addr.s_addr, 16);
  std::from_chars(text.data() + 9, text.data() + text.size(), port, 16);
  name.sin_port = htons(port);
  return name;
}

}  // namespace

Callers::Callers(std::vector<std::string> tables, uint64_t seed)
    : tables_(std::move(tables)), prng_(seed) {}

Callers::~Callers() {
  for (const Caller& caller : callers_) close(caller.fd);
}

void Callers::read_tables() {
  ports_.clear();
  for (const std::string& table : tables_) {
    std::ifstream file(table);
    std::string line;
    std::getline(file, line);  // the columns' names
    while (std::getline(file, line)) {
      std::istringstream columns(line);
      std::string number, local, remote, state;
      columns >> number >> local >> remote >> state;
      if (state == kListening) ports_.push_back(parse(local));
    }
  }
}

bool Callers::connect_one() {
  if (callers_.size() == kMostCallers) disconnect(0);
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return false;
  const sockaddr_in& to = ports_[prng_.below(ports_.size())];
  if (connect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof to) < 0 && errno != EINPROGRESS) {
    close(fd);
    return false;
  }
  callers_.push_back({.fd = fd, .bytes = draw_bytes()});
  send_pending();
  return true;
}

std::vector<uint8_t> Callers::draw_bytes() {
  using namespace bootstrap;
  std::vector<uint8_t> bytes;
  if (prng_.chance(0.3)) return bytes;
  if (prng_.chance(0.3)) {
    bytes.resize(1 + prng_.below(4000));
    fill_random(prng_, bytes);
    return bytes;
  }
  // A hello, with or without an offer whose MAC is random; whole or truncated.
  std::vector<uint8_t> body(sizeof(Nonce));
  fill_random(prng_, body);
  const Frame hello = encode_frame(FrameType::kHello, body);
  bytes.assign(hello.bytes.begin(), hello.bytes.begin() + static_cast<ptrdiff_t>(hello.size));
  if (prng_.chance(0.5)) {
    body.resize(sizeof(bootstrap::Mac) + prng_.below(kMaxBootstrapPayload));
    fill_random(prng_, body);
    const Frame offer = encode_frame(FrameType::kOffer, body);
    bytes.insert(bytes.end(), offer.bytes.begin(),
                 offer.bytes.begin() + static_cast<ptrdiff_t>(offer.size));
  }
  if (prng_.chance(0.5)) bytes.resize(prng_.below(bytes.size()));
  return bytes;
}

// Half of the connections end with a reset.
void Callers::disconnect(size_t caller) {
  const linger abruptly{.l_onoff = 1, .l_linger = 0};
  const int fd = callers_[caller].fd;
  if (prng_.chance(0.5)) setsockopt(fd, SOL_SOCKET, SO_LINGER, &abruptly, sizeof abruptly);
  close(fd);
  callers_.erase(callers_.begin() + static_cast<ptrdiff_t>(caller));
}

// Sends on the newest connections that have not sent yet: connect() may still have been running.
void Callers::send_pending() {
  constexpr size_t kNewest = 16;
  for (size_t i = callers_.size() - std::min(callers_.size(), kNewest); i < callers_.size(); ++i) {
    Caller& caller = callers_[i];
    if (caller.bytes.empty()) continue;
    if (send(caller.fd, caller.bytes.data(), caller.bytes.size(), MSG_NOSIGNAL) < 0) continue;
    caller.bytes.clear();
  }
  if (prng_.chance(0.1)) disconnect(prng_.below(callers_.size()));
}

}  // namespace pacecar::attack
