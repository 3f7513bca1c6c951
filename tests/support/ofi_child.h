// A child process with a libfabric NIC, queue pairs, and a region that its peers may write.
#pragma once

#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <exception>
#include <stdexcept>

#include "tests/support/ofi_end.h"

namespace pacecar::test {

class OfiChild {
 public:
  static constexpr size_t kRegionBytes = 256 << 10;

  // Call it while no libfabric NIC is open in this process.
  explicit OfiChild(const OfiKind& kind) {
    std::array<int, 2> ends{};
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) != 0) {
      throw std::runtime_error("no socket pair");
    }
    pid_ = fork();
    if (pid_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      close(ends[0]);
      live(kind, ends[1]);
    }
    close(ends[1]);
    socket_ = ends[0];
  }
  OfiChild(const OfiChild&) = delete;
  OfiChild& operator=(const OfiChild&) = delete;
  ~OfiChild() {
    ::kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    close(socket_);
  }

  // A queue pair of `end` to the child, and the region of the child, which writes all of it to
  // `sink` once, if there is one.
  std::pair<QueuePairId, OfiTarget> connect(OfiEnd& end, const QueuePairConfig& config = {},
                                            const OfiTarget& sink = {}) {
    ask_for(kConnect);
    Hello hello;
    if (recv(socket_, &hello, sizeof hello, 0) != sizeof hello) {
      throw std::runtime_error("the other process could not open its NIC");
    }
    const QueuePairId id = need(end.nic().create_queue_pair(config));
    const Hello own{.address = end.nic().queue_pair_address(id), .target = sink};
    send(socket_, &own, sizeof own, 0);
    join(end, id, hello.address.view());
    return {id, hello.target};
  }

  // The child sends itself this signal outside of calls of the provider.
  void ask_for(char signal) { send(socket_, &signal, 1, 0); }
  void kill() { ::kill(pid_, SIGKILL); }
  void resume() { ::kill(pid_, SIGCONT); }
  // Waits until the child has stopped or ended.
  void await() const {
    siginfo_t info{};
    waitid(P_PID, pid_, &info, WSTOPPED | WEXITED | WNOWAIT);
  }

 private:
  struct Hello {
    QueuePairAddress address;
    OfiTarget target;
  };

  static constexpr char kConnect = 0;

  [[noreturn]] static void live(const OfiKind& kind, int socket) try {
    OfiEnd end(kind);
    const auto& region = end.memory(kRegionBytes, Access::kRemoteWrite);
    for (Waiting idle;;) {
      end.step() ? idle.restart() : idle.pause();
      end.completions.clear();
      char wish = 0;
      const ssize_t got = recv(socket, &wish, 1, MSG_DONTWAIT);
      if (got == 0) _exit(0);
      if (got < 0) continue;
      if (wish != kConnect) {
        raise(wish);
        continue;
      }
      const QueuePairId id = need(end.nic().create_queue_pair({}));
      Hello hello{.address = end.nic().queue_pair_address(id), .target = region.target()};
      send(socket, &hello, sizeof hello, 0);
      if (recv(socket, &hello, sizeof hello, 0) != sizeof hello) _exit(1);
      join(end, id, hello.address.view());
      if (hello.target.address != 0) end.post(id, OfiEnd::write(1, region, hello.target));
    }
  } catch (const std::exception&) {
    _exit(1);
  }

  pid_t pid_ = 0;
  int socket_ = -1;
};

}  // namespace pacecar::test
