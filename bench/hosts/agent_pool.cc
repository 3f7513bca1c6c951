#include "bench/hosts/agent_pool.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <map>
#include <string_view>

#include "bench/cli/clock.h"
#include "bench/cli/interrupt.h"
#include "bench/cli/json_fields.h"
#include "bench/hosts/agent_protocol.h"
#include "transport/base/file_descriptor.h"
#include "transport/base/invalid.h"
#include "transport/base/printable.h"
#include "transport/base/return_if_error.h"

extern char** environ;

namespace pacecar::hosts {
namespace {

using Json = nlohmann::json;

constexpr size_t kMaxErrors = 1U << 16;
constexpr size_t kMaxErrorLine = 300;
constexpr size_t kMaxText = 256;
constexpr size_t kMaxName = 256;
constexpr Duration kInfoLimit = Duration::from_s(60);
constexpr int kNotFoundByShell = 127;
constexpr int kEndStepMs = 10;
constexpr Duration kEndLimit = Duration::from_s(3);  // of launchers, once their input has ended

// The last line of a program's errors, cut to a length that fits a sentence.
std::string last_line_of(const std::string& errors) {
  return printable(cli::last_lines(errors, 1)).substr(0, kMaxErrorLine);
}

// A program's output, which may have newlines.
Result<std::string> output_field(const Json& message, const char* key) {
  const auto found = message.find(key);
  if (found != message.end() && found->is_string()) return found->get<std::string>();
  return fail(ErrorCode::kPeer, "there is no {}", key);
}

// What an agent reports of a run.
Result<Event> event_of(size_t host, const Json& message) {
  Event event{.host = host};
  ASSIGN_OR_RETURN(event.id, cli::unsigned_field(message, "id", 0, UINT64_MAX));
  if (message["type"] == "serving") {
    event.kind = Event::Kind::kServing;
    ASSIGN_OR_RETURN(event.address, cli::text_field(message, "address", kMaxText));
    ASSIGN_OR_RETURN(event.port, cli::unsigned_field(message, "port", 1, UINT16_MAX));
    return event;
  }
  if (message["type"] != "ended") return fail(ErrorCode::kPeer, "the type is not known");
  ASSIGN_OR_RETURN(event.code, cli::unsigned_field(message, "code", 0, 255));
  ASSIGN_OR_RETURN(event.output, output_field(message, "output"));
  ASSIGN_OR_RETURN(event.errors, output_field(message, "errors"));
  return event;
}

bool mentions(const std::string& text, std::string_view what) {
  return text.find(what) != text.npos;
}

// PACECAR_* of this process, which hold for all hosts.
Json pacecar_environment() {
  Json variables = Json::object();
  for (char** one = environ; *one != nullptr; ++one) {
    const std::string_view text = *one;
    const size_t equals = text.find('=');
    if (!text.starts_with("PACECAR_") || equals == text.npos) continue;
    variables[std::string(text.substr(0, equals))] = text.substr(equals + 1);
  }
  return variables;
}

void print_lost(const AgentPool& agents, const std::vector<Event>& events,
                const cli::Console& console) {
  for (const Event& event : events) {
    if (event.kind != Event::Kind::kLost) continue;
    console.error(fmt::format("{}: {}", agents.host(event.host).name, agents.why_lost(event.host)));
  }
}

// Warns of hosts with another release, and of two names for the same machine.
void warn_of_hosts(const AgentPool& agents, const cli::Console& console) {
  std::map<std::string, std::string> first;  // names by machine
  for (size_t i = 0; i < agents.size(); ++i) {
    if (!agents.ready(i)) continue;
    const std::string& name = agents.host(i).name;
    if (agents.release(i) != PACECAR_VERSION) {
      console.warn(fmt::format("{} has pacecar {}, and this host {}: install the same one", name,
                               agents.release(i), PACECAR_VERSION));
    }
    const auto [other, added] = first.emplace(agents.machine(i), name);
    if (added) continue;
    console.warn(
        fmt::format("{} and {} are the same machine: between them nothing leaves it; leave "
                    "one out",
                    other->second, name));
  }
}

}  // namespace

AgentPool::AgentPool(const std::vector<Host>& hosts, const Launcher& launcher,
                     const std::string& remote, Duration reach)
    : remote_(remote), reach_(reach), begun_(cli::steady_now()), last_sent_(begun_) {
  allow_descriptors();
  std::signal(SIGPIPE, SIG_IGN);  // write() reports an agent that is gone
  const std::vector<std::string> words{remote, "agent"};
  for (const Host& host : hosts) {
    members_.push_back({.host = host, .command = launcher.command(host, words)});
  }
  for (size_t i = 0; i < members_.size(); ++i) {
    auto child = cli::Child::execute(members_[i].command, {.input = true});
    if (!child) {
      const bool missing = child.error().code == ErrorCode::kNotFound;
      lose(i, child.error().message +
                  (missing ? ": install it, or name another way with --launch" : ""));
      continue;
    }
    members_[i].child.emplace(std::move(*child));
    send(i, {{"type", "hello"},
             {"protocol", kAgentProtocol},
             {"release", PACECAR_VERSION},
             {"environment", pacecar_environment()}});
  }
}

AgentPool::~AgentPool() {
  std::vector<cli::Child*> left;
  for (Member& member : members_) {
    if (!member.child) continue;
    member.child->close_input();
    left.push_back(&*member.child);
  }
  // A launcher passes the end of its input on; one that does not is ended. An agent whose output
  // nobody reads would not end.
  const Instant deadline = cli::steady_now() + kEndLimit;
  while (!left.empty() && cli::steady_now() < deadline) {
    for (cli::Child* child : left) child->read();
    std::erase_if(left, [](cli::Child* child) { return child->ended().has_value(); });
    poll(nullptr, 0, kEndStepMs);
  }
  for (cli::Child* child : left) child->signal(SIGTERM);
  for (cli::Child* child : left) child->end(kGraceMs);
}

size_t AgentPool::count(State state) const {
  return static_cast<size_t>(std::ranges::count(members_, state, &Member::state));
}

uint64_t AgentPool::run(size_t host, const std::vector<std::string>& arguments, bool announces) {
  const uint64_t id = ++last_id_;
  send(host, {{"type", "run"}, {"id", id}, {"arguments", arguments}, {"announces", announces}});
  return id;
}

void AgentPool::stop(size_t host, uint64_t id) { send(host, {{"type", "stop"}, {"id", id}}); }

void AgentPool::lose(size_t host, const std::string& why) {
  Member& member = members_[host];
  if (member.state == State::kLost) return;
  member.state = State::kLost;
  member.why = why;
  if (member.child) member.child->close_input();
  events_.push_back({.kind = Event::Kind::kLost, .host = host});
}

void AgentPool::send(size_t index, const Json& message) {
  Member& member = members_[index];
  if (member.state == State::kLost || !member.child) return;
  const std::string line = cli::json_line(message);
  const ssize_t size = write(member.child->input().get(), line.data(), line.size());
  if (size == static_cast<ssize_t>(line.size())) return;
  // Why an agent has ended is found out when its output is read.
  if (size < 0 && errno == EPIPE) return;
  lose(index, "it does not read commands any more: is it overloaded?");
}

void AgentPool::keep_alive() {
  if (cli::steady_now() - last_sent_ < kAlive) return;
  last_sent_ = cli::steady_now();
  for (size_t i = 0; i < members_.size(); ++i) send(i, {{"type", "alive"}});
}

std::vector<Event> AgentPool::turn(Duration limit) {
  std::vector<pollfd> waiting;
  std::vector<size_t> whose;
  for (size_t i = 0; i < members_.size(); ++i) {
    if (members_[i].state != State::kLost) members_[i].child->add_to(waiting);
    whose.resize(waiting.size(), i);
  }
  if (events_.empty()) {
    poll(waiting.data(), waiting.size(), static_cast<int>(limit.ns() / 1'000'000));
  }
  for (size_t i = 0; i < waiting.size(); ++i) {
    if (waiting[i].revents != 0) read(whose[i]);
  }
  if (cli::steady_now() - begun_ > reach_) {
    for (size_t i = 0; i < members_.size(); ++i) {
      if (members_[i].state != State::kReaching) continue;
      lose(i, fmt::format("it has not answered within {:g} s: does '{}' work by hand? --reach "
                          "allows more",
                          reach_.seconds(), fmt::join(members_[i].command, " ")));
    }
  }
  keep_alive();
  return std::exchange(events_, {});
}

void AgentPool::read(size_t index) {
  Member& member = members_[index];
  if (member.state == State::kLost) return;
  cli::Child& child = *member.child;
  const bool over = child.ended().has_value();  // before its last output is read
  child.read();
  if (child.errors.size() > kMaxErrors) child.errors.erase(0, child.errors.size() - kMaxErrors);
  while (const auto line = cli::take_line(child.output)) {
    take(index, *line);
    if (member.state == State::kLost) return;
  }
  if (child.output.size() > kMaxAgentLine) {
    lose(index, "its output has no end: install the same version there");
  } else if (over || !child.output_open()) {
    ended(index);
  }
}

void AgentPool::take(size_t index, std::string_view line) {
  Member& member = members_[index];
  const Json message = cli::parse_json(line);
  const bool object = message.is_object() && message.value("type", Json()).is_string();
  if (member.state == State::kReaching) {
    if (object && message["type"] == "welcome") return greet(index, message);
    member.greeting = line;  // a shell's banner, or why no agent starts
    return;
  }
  if (object) return report(index, message);
  lose(index, fmt::format("'{}' is not from pacecar agent: does something print to standard output "
                          "there?",
                          last_line_of(std::string(line))));
}

void AgentPool::greet(size_t index, const Json& message) {
  Member& member = members_[index];
  const auto protocol = cli::unsigned_field(message, "protocol", 0, UINT64_MAX);
  const auto release = cli::text_field(message, "release", kMaxText);
  const auto machine = cli::text_field(message, "machine", kMaxText);
  if (!protocol || !release || !machine || *protocol != kAgentProtocol) {
    return lose(index, fmt::format("it has another version of pacecar (there {}, here {}): install "
                                   "the same one",
                                   release ? printable(*release) : "unknown", PACECAR_VERSION));
  }
  member.release = printable(*release);
  member.machine = *machine;
  member.child->errors.clear();  // banners
  member.state = State::kReady;
}

void AgentPool::report(size_t index, const Json& message) {
  auto event = event_of(index, message);
  if (!event) {
    return lose(index, "its output is not of this version of pacecar: install the same one");
  }
  events_.push_back(std::move(*event));
}

// Its output has ended: finds out why.
void AgentPool::ended(size_t index) {
  Member& member = members_[index];
  const cli::ExitStatus status = member.child->end(kGraceMs);
  member.child->read();
  const std::string& errors = member.child->errors;
  const std::string last_error = last_line_of(errors.empty() ? member.greeting : errors);
  const std::string words = last_error.empty() ? "" : ": " + last_error;
  if (member.state == State::kReady) {
    return lose(index, fmt::format("its agent has ended ({}{}): is the host still there?",
                                   status.text(), words));
  }
  if (mentions(errors, "no subcommand 'agent'")) {
    return lose(index, fmt::format("it has a version of pacecar that knows no --hosts: install the "
                                   "one of this host ({})",
                                   PACECAR_VERSION));
  }
  // The exit code is ssh's own if it was still writing.
  const bool missing = mentions(last_error, remote_) &&
                       (mentions(last_error, "not found") || mentions(last_error, "No such file"));
  if (status.code == kNotFoundByShell || missing) {
    return lose(
        index,
        fmt::format("it has no pacecar ({}{}): install it there, or give its path with --remote",
                    status.text(), words));
  }
  lose(index, fmt::format("it cannot be reached ({}{}): does '{}' work by hand?", status.text(),
                          words, fmt::join(member.command, " ")));
}

std::string count_of(size_t count, const std::string& what) {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
}

Result<std::unique_ptr<AgentPool>> reach(const Targets& targets, const cli::HostsFlags& flags,
                                         const cli::Console& console) {
  console.note(fmt::format("reaching {} by {}", count_of(targets.hosts.size(), "host"),
                           targets.launcher.program()));
  auto agents = std::make_unique<AgentPool>(targets.hosts, targets.launcher, flags.remote,
                                            cli::duration_of(flags.reach_s));
  {
    cli::ProgressBar bar(console.interactive());
    while (agents->waiting() > 0 && !cli::Interrupt::asked()) {
      print_lost(*agents, agents->turn(kTurn), console);
      bar.show(agents->size() - agents->waiting(), agents->size(),
               agents->size() == 1 ? "host" : "hosts");
    }
  }
  print_lost(*agents, agents->turn(Duration()), console);
  if (cli::Interrupt::asked()) {
    return fail(ErrorCode::kUnavailable, "interrupted before anything was measured");
  }
  if (agents->ready_count() == 0) {
    const std::string hosts =
        fmt::format("none of the {} hosts has answered: see above", agents->size());
    return fail(ErrorCode::kPeer, agents->size() == 1 ? "the host has not answered" : hosts);
  }
  warn_of_hosts(*agents, console);
  return agents;
}

std::vector<std::optional<Event>> run_on_all(
    AgentPool& agents, const std::function<std::vector<std::string>(size_t host)>& arguments_of,
    Duration limit, const cli::Console& console) {
  std::vector<std::optional<Event>> ends(agents.size());
  std::map<uint64_t, size_t> running;
  for (size_t i = 0; i < agents.size(); ++i) {
    if (!agents.ready(i)) continue;
    const std::vector<std::string> arguments = arguments_of(i);
    if (!arguments.empty()) running.emplace(agents.run(i, arguments), i);
  }
  const Instant deadline = cli::steady_now() + limit;
  while (!running.empty() && cli::steady_now() < deadline && !cli::Interrupt::asked()) {
    std::vector<Event> events = agents.turn(kTurn);
    print_lost(agents, events, console);
    for (Event& event : events) {
      if (event.kind == Event::Kind::kLost) {
        std::erase_if(running, [&](const auto& one) { return one.second == event.host; });
      } else if (event.kind == Event::Kind::kEnded && running.erase(event.id) > 0) {
        ends[event.host] = std::move(event);
      }
    }
  }
  const std::string why = cli::Interrupt::asked()
                              ? "interrupted"
                              : fmt::format("it took longer than {:g} s", limit.seconds());
  for (const auto& [id, host] : running) agents.lose(host, why);
  print_lost(agents, agents.turn(Duration()), console);
  return ends;
}

std::vector<std::optional<std::vector<HostNic>>> ask_nics(
    AgentPool& agents, const std::function<bool(size_t host)>& wanted,
    const cli::Console& console) {
  const auto words = [&](size_t host) {
    return wanted(host) ? std::vector<std::string>{"info", "--json"} : std::vector<std::string>();
  };
  const auto ends = run_on_all(agents, words, kInfoLimit, console);
  std::vector<std::optional<std::vector<HostNic>>> all(ends.size());
  for (size_t i = 0; i < ends.size(); ++i) {
    if (!ends[i]) continue;
    if (ends[i]->code != 0) {
      console.error(fmt::format("{}: {}", agents.host(i).name, why_failed(*ends[i])));
      agents.lose(i, why_failed(*ends[i]));
      continue;
    }
    all[i].emplace();
    const auto document = cli::parse_json(ends[i]->output);
    if (!document.is_object() || !document.contains("nics")) continue;
    for (const auto& nic : document["nics"]) {
      const auto name = cli::text_field(nic, "name", kMaxName);
      const auto address = cli::text_field(nic, "address", kMaxName);
      if (name && address) all[i]->push_back({printable(*name), printable(*address)});
    }
  }
  return all;
}

std::string why_failed(const Event& ended) {
  constexpr std::string_view kErrorLabel = "error: ";
  std::string text = last_line_of(ended.errors);
  if (const size_t label = text.find(kErrorLabel); label != text.npos) {
    text.erase(0, label + kErrorLabel.size());
  }
  if (!text.empty()) return text;
  return ended.code > 128 ? fmt::format("it was ended by signal {}", ended.code - 128)
                          : fmt::format("it ended with exit code {}", ended.code);
}

}  // namespace pacecar::hosts
