#include "bench/hosts/pair_runner.h"

#include <fmt/format.h>

#include <algorithm>
#include <list>
#include <sstream>

#include "bench/cli/clock.h"
#include "bench/cli/command_line.h"
#include "bench/cli/interrupt.h"
#include "bench/cli/json_fields.h"
#include "transport/base/printable.h"

namespace pacecar::hosts {
namespace {

constexpr Duration kServingLimit = Duration::from_s(30);  // for a server's start
constexpr Duration kEndingLimit = Duration::from_s(10);   // for the second end after the first
constexpr std::string_view kWarning = "warning: ";

enum class Stage { kServing, kMeasuring, kEnding, kStopped, kOver };

struct End {
  size_t host = 0;
  uint64_t run = 0;  // 0: none
  bool over = false;

  bool runs() const { return run != 0 && !over; }
};

class Attempt {
 public:
  Attempt(AgentPool& agents, const PairPlan& plan, const Pair& pair)
      : agents_(agents), plan_(plan) {
    measurement_.pair = pair;
    server_.host = plan.reversed ? pair.sender : pair.receiver;
    client_.host = plan.reversed ? pair.receiver : pair.sender;
    for (const size_t host : {server_.host, client_.host}) {
      if (!agents.lost(host)) continue;
      give_up(lost_text(host));
      return;
    }
    std::vector<std::string> words = arguments_for(server_.host, std::to_string(plan.port));
    if (const std::string& address = agents.host(server_.host).address; !address.empty()) {
      words.insert(words.end(), {"--bind", address});
    }
    server_.run = agents.run(server_.host, words, /*announces=*/true);
    deadline_ = cli::steady_now() + kServingLimit;
  }

  bool over() const { return stage_ == Stage::kOver; }
  Measurement take() { return std::move(measurement_); }

  void take(const Event& event) {
    if (over()) return;
    if (event.kind == Event::Kind::kLost) return lose(event.host);
    if (event.kind == Event::Kind::kServing && event.id == server_.run) return serve(event);
    if (event.kind != Event::Kind::kEnded) return;
    if (event.id == server_.run) end_server(event);
    if (client_.run != 0 && event.id == client_.run) end_client(event);
    end_if_idle();
  }

  void check_deadline() {
    if (over() || cli::steady_now() < deadline_) return;
    if (stage_ == Stage::kStopped) return lose_silent();
    if (stage_ == Stage::kEnding) return stop();
    give_up(stage_ == Stage::kServing
                ? fmt::format("{} has not begun to serve within {:g} s",
                              agents_.host(server_.host).name, kServingLimit.seconds())
                : fmt::format("it took longer than {:g} s: {}", plan_.limit.seconds(),
                              plan_.when_late));
  }

 private:
  std::vector<std::string> arguments_for(size_t host, const std::string& port) const {
    std::vector<std::string> words{plan_.test};
    words.insert(words.end(), plan_.flags.begin(), plan_.flags.end());
    const auto& own = plan_.of_hosts[host];
    words.insert(words.end(), own.begin(), own.end());
    words.insert(words.end(), {"--quiet", "--no-color", "--port", port});
    return words;
  }

  std::string lost_text(size_t host) const {
    return fmt::format("{} is lost: {}", agents_.host(host).name, agents_.why_lost(host));
  }

  void lose(size_t host) {
    for (End* end : {&server_, &client_}) {
      if (end->host != host) continue;
      end->over = true;
      if (measurement_.results.is_null()) give_up(lost_text(host));
    }
    end_if_idle();
  }

  // Stops what still runs and waits for its end.
  void give_up(const std::string& why) {
    if (measurement_.error.empty()) measurement_.error = why;
    stop();
    end_if_idle();
  }

  void stop() {
    stage_ = Stage::kStopped;
    deadline_ = cli::steady_now() + kEndingLimit;
    for (const End& end : {server_, client_}) {
      if (end.runs()) agents_.stop(end.host, end.run);
    }
  }

  // Agents kill runs that do not stop, so this agent does not answer at all. It would delay every
  // later round as much.
  void lose_silent() {
    stage_ = Stage::kOver;
    for (const End& end : {server_, client_}) {
      if (end.runs()) {
        agents_.lose(end.host, "its agent does not answer any more: is the host still there?");
      }
    }
  }

  void serve(const Event& event) {
    const std::string& wanted = agents_.host(server_.host).address;
    const std::string& address = wanted.empty() ? event.address : wanted;
    const bool local = address.starts_with("127.") || address == "::1";
    if (local && agents_.machine(server_.host) != agents_.machine(client_.host)) {
      return give_up(
          fmt::format("{} serves at {}, where others cannot reach it: name its NIC with "
                      "-d or PACECAR_NICS, or write addr=ADDRESS behind it in the file "
                      "of hosts",
                      agents_.host(server_.host).name, printable(address)));
    }
    std::vector<std::string> words = arguments_for(client_.host, std::to_string(event.port));
    words.insert(words.end(), {"--json=-", "--", address});  // a peer's text is not a flag
    client_.run = agents_.run(client_.host, words);
    stage_ = Stage::kMeasuring;
    deadline_ = cli::steady_now() + plan_.limit;
  }

  void end_server(const Event& event) {
    server_.over = true;
    add_warnings(event, server_.host);
    if (stage_ == Stage::kServing) {
      give_up(fmt::format("{}: {}", agents_.host(server_.host).name, why_failed(event)));
    }
    if (stage_ == Stage::kMeasuring) {
      deadline_ = std::min(deadline_, cli::steady_now() + kEndingLimit);
      if (event.code != cli::kExitOk && measurement_.error.empty()) {
        measurement_.error =
            fmt::format("{}: {}", agents_.host(server_.host).name, why_failed(event));
      }
    }
  }

  void end_client(const Event& event) {
    client_.over = true;
    add_warnings(event, client_.host);
    const bool missed = event.code == cli::kExitThresholdMissed;
    if (event.code == cli::kExitOk || missed) {
      auto document = cli::parse_json(event.output);
      if (document.is_object() && document.contains("results")) {
        measurement_.results = std::move(document["results"]);
        if (missed) measurement_.missed = why_failed(event);
        measurement_.error.clear();
        stage_ = Stage::kEnding;
        deadline_ = cli::steady_now() + kEndingLimit;
        return;
      }
    }
    give_up(fmt::format("{}: {}", agents_.host(client_.host).name, why_failed(event)));
  }

  void end_if_idle() {
    const bool ends = stage_ == Stage::kEnding || stage_ == Stage::kStopped;
    if (ends && !client_.runs() && !server_.runs()) stage_ = Stage::kOver;
  }

  void add_warnings(const Event& event, size_t host) {
    std::istringstream lines(event.errors);
    for (std::string line; std::getline(lines, line);) {
      if (!line.starts_with(kWarning)) continue;
      measurement_.warnings.push_back(
          fmt::format("{}: {}", agents_.host(host).name, printable(line.substr(kWarning.size()))));
    }
  }

  AgentPool& agents_;
  const PairPlan& plan_;
  Stage stage_ = Stage::kServing;
  Instant deadline_;
  End server_;
  End client_;
  Measurement measurement_;
};

// A tournament by the circle method: one place stays, and the others rotate. With an odd number of
// hosts one place is empty, so that one host has no pair.
std::vector<Round> tournament(size_t hosts) {
  const size_t places = hosts + hosts % 2;
  std::vector<Round> rounds;
  for (size_t turn = 0; turn + 1 < places; ++turn) {
    const auto at = [&](size_t place) {
      return place == 0 ? size_t{0} : 1 + (place - 1 + turn) % (places - 1);
    };
    Round round;
    for (size_t i = 0; i < places / 2; ++i) {
      const Pair pair{at(i), at(places - 1 - i)};
      if (pair.sender < hosts && pair.receiver < hosts) round.push_back(pair);
    }
    rounds.push_back(std::move(round));
  }
  return rounds;
}

// Rounds of a ring's edges: the even ones, the odd ones, and for an odd number of hosts the last.
std::vector<Round> ring(size_t hosts) {
  std::vector<Round> rounds(2);
  const size_t edges = hosts == 2 ? 1 : hosts;
  for (size_t i = 0; i < edges; ++i) {
    const bool closes = hosts % 2 == 1 && i + 1 == hosts;
    if (closes) rounds.emplace_back();
    rounds[closes ? 2 : i % 2].push_back({i, (i + 1) % hosts});
  }
  if (rounds[1].empty()) rounds.pop_back();
  return rounds;
}

std::vector<Round> both_ways(const std::vector<Round>& rounds) {
  std::vector<Round> all;
  for (const Round& round : rounds) {
    Round back;
    for (const Pair& pair : round) back.push_back({pair.receiver, pair.sender});
    all.push_back(round);
    all.push_back(std::move(back));
  }
  return all;
}

}  // namespace

std::vector<Round> schedule(size_t hosts, std::string_view pairs) {
  if (hosts < 2) return {};
  const std::vector<Round> rounds = both_ways(pairs == "ring" ? ring(hosts) : tournament(hosts));
  if (pairs != "all") return rounds;
  std::vector<Round> one_at_a_time;
  for (const Round& round : rounds) {
    for (const Pair& pair : round) one_at_a_time.push_back({pair});
  }
  return one_at_a_time;
}

void measure_round(AgentPool& agents, const PairPlan& plan, const Round& round,
                   const std::function<void(Measurement)>& on_done,
                   const std::function<void()>& on_turn) {
  std::list<Attempt> attempts;
  for (const Pair& pair : round) attempts.emplace_back(agents, plan, pair);
  while (!cli::Interrupt::asked()) {
    for (auto one = attempts.begin(); one != attempts.end();) {
      one->check_deadline();
      if (!one->over()) {
        ++one;
        continue;
      }
      on_done(one->take());
      one = attempts.erase(one);
    }
    if (attempts.empty()) return;
    for (const Event& event : agents.turn(kTurn)) {
      for (Attempt& attempt : attempts) attempt.take(event);
    }
    on_turn();
  }
}

}  // namespace pacecar::hosts
