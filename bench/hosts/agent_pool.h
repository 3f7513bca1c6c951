// The agents of all hosts of --hosts: starts them, sends them commands, and returns their events. A
// lost host stays lost, with the reason; the others continue. Thread rule: one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "bench/cli/child.h"
#include "bench/cli/command_line.h"
#include "bench/cli/console.h"
#include "bench/hosts/targets.h"
#include "transport/base/result.h"
#include "transport/base/units.h"

namespace pacecar::hosts {

struct Event {
  enum class Kind { kServing, kEnded, kLost };

  Kind kind = Kind::kEnded;
  size_t host = 0;
  uint64_t id = 0;  // of the run: kServing, kEnded
  std::string address;
  uint16_t port = 0;
  int code = 0;  // 128 plus the signal's number if a signal ended it
  std::string output;
  std::string errors;
};

// The most that a turn waits, so that progress can be shown.
inline constexpr Duration kTurn = Duration::from_ms(100);

class AgentPool {
 public:
  // Starts an agent on each; `remote` is the program there.
  AgentPool(const std::vector<Host>& hosts, const Launcher& launcher, const std::string& remote,
            Duration reach);
  AgentPool(const AgentPool&) = delete;
  // Ends the agents by the end of their input, and what launched them.
  ~AgentPool();

  size_t size() const { return members_.size(); }
  const Host& host(size_t index) const { return members_[index].host; }
  bool ready(size_t index) const { return members_[index].state == State::kReady; }
  bool lost(size_t index) const { return members_[index].state == State::kLost; }
  const std::string& why_lost(size_t index) const { return members_[index].why; }
  const std::string& release(size_t index) const { return members_[index].release; }
  const std::string& machine(size_t index) const { return members_[index].machine; }
  size_t waiting() const { return count(State::kReaching); }
  size_t ready_count() const { return count(State::kReady); }

  // Runs this program there with these arguments; returns the run's id. Its end is an event, unless
  // the host is lost. With `announces` there is an event with the server's address.
  uint64_t run(size_t host, const std::vector<std::string>& arguments, bool announces = false);
  void stop(size_t host, uint64_t id);
  void lose(size_t host, const std::string& why);

  // The events since the last turn; waits at most `limit`.
  std::vector<Event> turn(Duration limit);

 private:
  enum class State { kReaching, kReady, kLost };

  struct Member {
    Host host;
    std::vector<std::string> command;
    std::optional<cli::Child> child;
    State state = State::kReaching;
    std::string why;
    std::string release;
    std::string machine;
    std::string greeting;  // the last line before the agent's first
  };

  size_t count(State state) const;
  void read(size_t index);
  void take(size_t index, std::string_view line);
  void greet(size_t index, const nlohmann::json& message);
  void report(size_t index, const nlohmann::json& message);
  void ended(size_t index);
  void send(size_t index, const nlohmann::json& message);
  void keep_alive();

  std::string remote_;
  Duration reach_;
  Instant begun_;
  Instant last_sent_;
  std::vector<Member> members_;
  std::vector<Event> events_;
  uint64_t last_id_ = 0;
};

// Starts the agents and waits for them. Reports lost hosts, hosts with another release, and names
// of the same machine. Errors: kPeer (no host has answered), kUnavailable (Ctrl-C).
Result<std::unique_ptr<AgentPool>> reach(const Targets& targets, const cli::HostsFlags& flags,
                                         const cli::Console& console);

// Runs a command on all hosts that are ready, with the arguments that `arguments_of` returns for a
// host (empty: none). Returns how each ended; nullopt for a host that was lost, or took longer than
// `limit`, which is reported.
std::vector<std::optional<Event>> run_on_all(
    AgentPool& agents, const std::function<std::vector<std::string>(size_t host)>& arguments_of,
    Duration limit, const cli::Console& console);

// A NIC of a host, as `pacecar info` names it there.
struct HostNic {
  std::string name;
  std::string address;
};
// The NICs of each host. nullopt: the host is not `wanted` and was not asked, or it has failed: the
// failure is reported, and the host counts as lost.
std::vector<std::optional<std::vector<HostNic>>> ask_nics(
    AgentPool& agents, const std::function<bool(size_t host)>& wanted, const cli::Console& console);

// The last error that a run has printed, without its label; if there is none, how it ended.
std::string why_failed(const Event& ended);

// "3 hosts", "1 host".
std::string count_of(size_t count, const std::string& what);

}  // namespace pacecar::hosts
