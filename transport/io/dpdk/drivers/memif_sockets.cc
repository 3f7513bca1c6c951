#include "transport/io/dpdk/memif.h"

#include <fcntl.h>
#include <poll.h>
#include <rte_alarm.h>
#include <rte_ethdev.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <atomic>
#include <bitset>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <semaphore>
#include <thread>
#include <vector>

#include "transport/base/file_descriptor.h"
#include "transport/base/to_number.h"

namespace pacecar {
namespace {

// --- turns of bursts and the interrupt thread ---

// On a busy machine each turn costs a burst its processor.
constexpr std::chrono::milliseconds kHold(100);
constexpr std::chrono::milliseconds kHoldWhileConnecting(1);
// An alarm that is already due follows the one before it directly, without a look at other events.
constexpr std::chrono::microseconds kTurn(100);
constexpr std::chrono::microseconds kTurnWithoutLink(1000);

std::mutex turns;
// By port. Changes only in an InterruptTurn. Needs no destructor: that thread runs until the
// process ends.
std::bitset<RTE_MAX_ETHPORTS> guarded;
std::atomic<bool> turn_wanted{false};  // while an InterruptTurn lives
std::counting_semaphore<> ends_hold(0);
enum class Turn { kInterruptThread, kBursts, kNobody };  // kNobody: there is no link
std::atomic<Turn> turn{Turn::kNobody};
std::atomic<int> bursts{0};

void give(Turn to) {
  turn = to;
  turn.notify_all();
}

void hold(void* /*none*/);

void hold_after(std::chrono::microseconds time) {
  rte_eal_alarm_set(static_cast<uint64_t>(time.count()), hold, nullptr);
}

void hold(void* /*none*/) {
  if (turn_wanted) return;  // else an InterruptTurn would have to cancel this between two calls
  size_t links = 0;
  for (uint16_t port = 0; port < guarded.size(); ++port) links += guarded[port] && has_link(port);
  if (links == 0) {
    give(Turn::kNobody);
    return hold_after(kTurnWithoutLink);
  }
  give(Turn::kBursts);
  ends_hold.try_acquire_for(links == guarded.count() ? kHold : kHoldWhileConnecting);
  turn = Turn::kInterruptThread;
  // A burst that lasts longer than that has lost its processor.
  while (bursts > 0) std::this_thread::sleep_for(std::chrono::microseconds(10));
  hold_after(kTurn);
}

// --- control sockets ---

constexpr int kGreetingMs = 1000;  // a client must not leave before it is greeted

int option(int fd, int name) {
  int value = -1;
  socklen_t size = sizeof value;
  return getsockopt(fd, SOL_SOCKET, name, &value, &size) == 0 ? value : -1;
}

using GetName = int (*)(int, sockaddr*, socklen_t*);

// Compares names without the zero byte that begins an abstract name, and without the zeros at the
// end of the driver's names.
bool is_named(int fd, GetName get_name, std::string_view socket) {
  sockaddr_un address{};
  socklen_t size = sizeof address;
  if (get_name(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) return false;
  const size_t begin = address.sun_path[0] == '\0' ? 1 : 0;
  const char* const name = address.sun_path + begin;
  return std::string_view(name, strnlen(name, sizeof address.sun_path - begin)) == socket;
}

// Descriptors of sockets of the driver's kind whose own or whose peer's name (`get_name`) is
// `socket`.
std::vector<int> find_sockets(GetName get_name, std::string_view socket) {
  std::vector<int> found;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd", error)) {
    const int fd = to_number<int>(entry.path().filename().native()).value_or(-1);
    if (option(fd, SO_DOMAIN) == AF_UNIX && option(fd, SO_TYPE) == SOCK_SEQPACKET &&
        is_named(fd, get_name, socket)) {
      found.push_back(fd);
    }
  }
  return found;
}

}  // namespace

InterruptTurn::InterruptTurn() : lock_(turns) {
  if (guarded.none()) return;
  turn_wanted = true;
  ends_hold.release();
  rte_eal_alarm_cancel(hold, nullptr);  // waits until it does not run
}

InterruptTurn::~InterruptTurn() {
  turn_wanted = false;
  if (guarded.any()) hold_after(kTurn);
}

void add_guarded_device(uint16_t port_id) {
  const InterruptTurn turn;
  guarded.set(port_id);
}

void remove_guarded_device(uint16_t port_id) {
  const InterruptTurn turn;
  guarded.reset(port_id);
}

GuardedBurst::GuardedBurst(uint16_t port_id) : may_run_(true) {
  while (++bursts, turn != Turn::kBursts) {
    --bursts;
    may_run_ = has_link(port_id);
    if (!may_run_) return;
    turn.wait(Turn::kInterruptThread);
  }
}

GuardedBurst::~GuardedBurst() {
  if (may_run_) --bursts;
}

bool has_link(uint16_t port_id) {
  rte_eth_link link{};
  return rte_eth_link_get_nowait(port_id, &link) == 0 && link.link_status == RTE_ETH_LINK_UP;
}

void remove_dead_memif_socket(const std::string& path) {
  std::error_code error;
  sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
  if (path.size() >= sizeof address.sun_path || !std::filesystem::is_socket(path, error)) return;
  path.copy(address.sun_path, path.size());
  const FileDescriptor probe(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!probe) return;
  if (connect(probe.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0) {
    pollfd greeting{.fd = probe.get(), .events = POLLIN, .revents = 0};
    poll(&greeting, 1, kGreetingMs);
  } else if (errno == ECONNREFUSED) {
    std::filesystem::remove(path, error);
  }
}

void restrict_memif_socket(const std::string& path) { chmod(path.c_str(), S_IRUSR | S_IWUSR); }

bool memif_client_is_connected(std::string_view socket) {
  return !find_sockets(getpeername, socket).empty();
}

void retire_memif_listener(std::string_view socket) {
  for (const int fd : find_sockets(getsockname, socket)) {
    if (option(fd, SO_ACCEPTCONN) == 1) {
      // The interrupt thread needs a descriptor on which it can wait.
      const FileDescriptor silent(eventfd(0, EFD_CLOEXEC));
      if (silent) dup3(silent.get(), fd, O_CLOEXEC);
    } else {
      // A client that has not named its device yet: the driver must find the connection closed, and
      // empty.
      shutdown(fd, SHUT_RDWR);
      char byte = 0;
      while (recv(fd, &byte, sizeof byte, MSG_DONTWAIT) > 0) {
      }
    }
  }
}

}  // namespace pacecar
