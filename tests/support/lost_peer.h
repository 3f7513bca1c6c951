// One of two ranks is lost, in each of the ways in which a peer can be lost, and the other notices.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "tests/support/own_network.h"
#include "tests/support/rank_group.h"

namespace pacecar::test {

enum class Fate { kExits, kIsKilled, kIsStopped, kIsCutOff, kNeverActs };

class Loss {
 public:
  // The link is what joins the ranks: "lo", or a cable between two hosts.
  Loss(Rank& rank, int victim, Fate fate, const char* link)
      : rank_(rank), victim_(victim), fate_(fate), link_(link) {
    if (std::strcmp(link, "lo") != 0) make_two_hosts();
  }

  bool is_victim() const { return rank_.rank() == victim_; }

  // Returns in the rank that remains, and in both if the network fails.
  void happens() {
    if (!is_victim()) {
      pid_ = pid_in(rank_.take(victim_));
      return;
    }
    if (fate_ == Fate::kIsCutOff) set_link(link_, false);
    rank_.give(1 - victim_, handle_of(getpid()));
    if (fate_ == Fate::kIsKilled) raise(SIGKILL);
    if (fate_ == Fate::kIsStopped) raise(SIGSTOP);
    if (fate_ == Fate::kNeverActs) rank_.barrier();
    if (fate_ != Fate::kIsCutOff) std::exit(testing::Test::HasFailure() ? 1 : 0);
  }

  // A rank that has noticed says so.
  void is_noticed() const {
    if (fate_ == Fate::kIsStopped) kill(pid_, SIGKILL);
    if (fate_ == Fate::kNeverActs || fate_ == Fate::kIsCutOff) rank_.barrier();
  }

 private:
  // 192.0.2.1 is rank 0, 192.0.2.2 is rank 1.
  void make_two_hosts() {
    const std::string link = link_;
    const auto run = [](const std::string& command) {
      ASSERT_EQ(std::system(command.c_str()), 0) << command;
    };
    if (rank_.rank() == 1) {
      ASSERT_EQ(unshare(CLONE_NEWNET), 0);
      rank_.give(0, handle_of(getpid()));
    } else {
      const std::string other = std::to_string(pid_in(rank_.take(1)));
      run("ip link add " + link + " type veth peer name " + link + " netns " + other);
      other_host_ = FileDescriptor(open(("/proc/" + other + "/ns/net").c_str(), O_RDONLY));
    }
    rank_.barrier();
    run("ip link set lo up; ip link set " + link + " up; ip address add 192.0.2." +
        std::to_string(1 + rank_.rank()) + "/24 dev " + link);
    rank_.barrier();
  }
  static HandleBytes handle_of(pid_t pid) {
    HandleBytes bytes{};
    std::memcpy(bytes.data(), &pid, sizeof pid);
    return bytes;
  }
  static pid_t pid_in(const HandleBytes& handle) {
    pid_t pid = 0;
    std::memcpy(&pid, handle.data(), sizeof pid);
    return pid;
  }

  Rank& rank_;
  int victim_;
  Fate fate_;
  const char* link_;
  FileDescriptor other_host_;  // which outlives its process
  pid_t pid_ = 0;
};

// Runs two ranks; `body` calls happens() and is_noticed().
inline void lose_a_rank(int victim, Fate fate, const char* link,
                        const std::function<void(Rank&, Loss&)>& body) {
  const std::vector<int> statuses = run_processes(2, [&](Rank& rank) {
    Loss loss(rank, victim, fate, link);
    body(rank, loss);
  });
  EXPECT_EQ(statuses[static_cast<size_t>(1 - victim)], 0);
  EXPECT_EQ(WIFSIGNALED(statuses[static_cast<size_t>(victim)]),
            fate == Fate::kIsKilled || fate == Fate::kIsStopped);
}

// For ranks on a busy machine. A longer PACECAR_TIMEOUT may be set already.
inline void set_timeouts(const char* connecting = "10s") {
  setenv("PACECAR_CONNECT_TIMEOUT", connecting, 1);
  setenv("PACECAR_TIMEOUT", "15s", 0);
}

struct Case {
  std::string name;
  std::function<void()> run;
};

// Runs all cases at once, as they mostly wait, each in a process of its own, and in its own network
// unless `at_home`.
inline void run_apart(const std::vector<Case>& cases, bool at_home = false) {
  constexpr int kNotAllowed = 77;
  std::vector<pid_t> children;
  for (const Case& one : cases) {
    const pid_t child = children.emplace_back(fork());
    if (child != 0) continue;
    if (!at_home && !enter_own_network_as_root()) std::_Exit(kNotAllowed);
    one.run();
    std::fflush(stdout);
    std::_Exit(testing::Test::HasFailure() ? 1 : 0);
  }
  bool allowed = true;
  for (size_t i = 0; i < cases.size(); ++i) {
    int status = 0;
    waitpid(children[i], &status, 0);
    if (WIFEXITED(status) && WEXITSTATUS(status) == kNotAllowed) {
      allowed = false;
    } else {
      EXPECT_EQ(status, 0) << cases[i].name;
    }
  }
  if (!allowed) GTEST_SKIP() << "this host allows no network of our own: run as root";
}

}  // namespace pacecar::test
