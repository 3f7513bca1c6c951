// attacker: taps the two ports of the bridge that joins two hosts, as root, and attacks the
// software NICs of both; see README.md. It prints one line of JSON for each attack.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <csignal>
#include <map>
#include <string>
#include <vector>

#include "tests/attack/session.h"

namespace pacecar::attack {
namespace {

constexpr auto kFirstPacketLimit = std::chrono::seconds(60);

volatile std::sig_atomic_t stopped = 0;

struct Options {
  std::vector<std::string> attacks;
  std::vector<std::string> taps;
  std::vector<std::string> listening;
  Budget budget{.rate = 10'000, .seconds = 1, .stopped = &stopped};
  bool again = false;
  uint64_t seed = 1;
  Security security = Security::kAuth;
};

void print(const std::string& attack, const Outcome& outcome) {
  fmt::print(R"({{"attack":"{}","seconds":{:.3f},"sent":{},"lost":{},"cpu_seconds":{:.3f}}})"
             "\n",
             attack, outcome.seconds, outcome.sent, outcome.lost, outcome.cpu_seconds);
  std::fflush(stdout);
}

void attack_packets(const Options& options) {
  std::vector<Tap> taps;
  for (const std::string& interface : options.taps) {
    auto tap = Tap::open(interface);
    if (!tap) throw std::runtime_error(tap.error().message);
    taps.push_back(std::move(*tap));
  }
  Knowledge knowledge{.prng = Prng(options.seed), .security = options.security};
  if (!capture_first(taps, knowledge, kFirstPacketLimit)) {
    throw std::runtime_error(
        "no packet of both hosts was captured within a minute: start a job of two "
        "ranks whose packets pass the taps");
  }
  uint64_t seed = options.seed;
  do {
    for (const std::string& name : options.attacks) {
      knowledge.prng = Prng(seed);  // so each attack can be repeated alone
      print(name, run(*make_attack(name), taps, knowledge, options.budget));
      if (stopped != 0) return;
    }
    ++seed;
  } while (options.again);
}

void attack_bootstrap(const Options& options) {
  Callers callers(options.listening, options.seed);
  print("bootstrap", run(callers, options.budget));
}

int main(int argc, char** argv) {
  Options options;
  CLI::App app("Attacks two software NICs from the wire between them.");
  const std::map<std::string, Security> securities{
      {"off", Security::kOff}, {"auth", Security::kAuth}, {"encrypt", Security::kEncrypt}};
  app.add_option("--attack", options.attacks, "the attacks, in this order")
      ->delimiter(',')
      ->check(CLI::IsMember(std::vector<std::string>(kAttacks.begin(), kAttacks.end())));
  app.add_option("--tap", options.taps, "the bridge's port to each host")->expected(2);
  auto* listening =
      app.add_option("--listening", options.listening,
                     "instead: connect to the TCP ports in these files, as /proc/PID/net/tcp");
  app.add_option("--rate", options.budget.rate, "packets or connections per second; 0: no limit")
      ->check(CLI::Range(0.0, 1e7));
  app.add_option("--seconds", options.budget.seconds, "of each attack")
      ->check(CLI::Range(0.0, 1e5));
  app.add_flag("--again", options.again, "repeat all attacks until SIGTERM");
  app.add_option("--seed", options.seed, "of the random choices");
  app.add_option("--security", options.security, "what PACECAR_SECURITY is at the hosts")
      ->transform(CLI::CheckedTransformer(securities));
  CLI11_PARSE(app, argc, argv);
  if (listening->empty() && (options.attacks.empty() || options.taps.size() != 2)) {
    fmt::print(stderr, "give --attack and two --tap, or --listening\n");
    return 2;
  }
  std::signal(SIGTERM, [](int) { stopped = 1; });
  try {
    listening->empty() ? attack_packets(options) : attack_bootstrap(options);
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "attacker: {}\n", error.what());
    return 1;
  }
}

}  // namespace
}  // namespace pacecar::attack

int main(int argc, char** argv) { return pacecar::attack::main(argc, argv); }
