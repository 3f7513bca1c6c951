// `pacecar agent`: one host of `--hosts`, started there by ssh, srun or kubectl. Runs subcommands
// of this program, by commands on its standard input (agent_protocol.h), and ends with that input.
#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdlib>
#include <list>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "bench/cli/child.h"
#include "bench/cli/clock.h"
#include "bench/cli/command_line.h"
#include "bench/cli/console.h"
#include "bench/cli/json_fields.h"
#include "bench/cli/subcommands.h"
#include "bench/hosts/agent_protocol.h"
#include "transport/base/to_number.h"

namespace pacecar::hosts {
namespace {

using Json = nlohmann::json;

constexpr const char* kThisProgram = "/proc/self/exe";
constexpr const char* kOutput = "/proc/self/fd/1";
constexpr int kTurnMs = 500;

constexpr const char* kFooter =
    R"(Nobody needs to start it by hand: 'pacecar bw', 'lat', 'preflight', 'doctor' and 'top' with
--hosts start it on each host, and send commands to its standard input. When that input ends, the
agent ends, with everything that it has started.)";

struct Run {
  uint64_t id;
  cli::Child child;
  bool announces = false;               // it will print its address and port
  std::optional<Instant> kill_at = {};  // set when it is stopped
};

class Agent {
 public:
  // Serves until the standard input ends.
  int serve() {
    last_message_ = cli::steady_now();
    while (turn() && cli::steady_now() - last_message_ < kSilence) {
    }
    for (Run& run : runs_) run.child.signal(SIGTERM);
    for (Run& run : runs_) run.child.end(kGraceMs);
    return cli::kExitOk;
  }

 private:
  bool turn() {
    std::vector<pollfd> waiting{{STDIN_FILENO, POLLIN, 0}};
    for (const Run& run : runs_) run.child.add_to(waiting);
    poll(waiting.data(), waiting.size(), kTurnMs);
    read_runs();
    return waiting[0].revents == 0 || read_commands();
  }

  // False: the input has ended, or is not of this protocol.
  bool read_commands() {
    cli::read_pipe(input_, commands_);
    last_message_ = cli::steady_now();
    while (const auto line = cli::take_line(commands_)) {
      const Json command = cli::parse_json(*line);
      if (!command.is_object() || !execute(command)) return false;
    }
    return input_ && commands_.size() <= kMaxAgentLine;
  }

  // False: the peer does not use this protocol.
  bool execute(const Json& command) try {
    const auto& type = command.at("type").get_ref<const std::string&>();
    if (type == "hello") return greet(command);
    if (type == "run") start(command);
    if (type == "stop") stop(command.at("id").get<uint64_t>());
    return true;
  } catch (const Json::exception&) {
    return false;
  }

  bool greet(const Json& command) {
    for (const auto& [name, value] : command.at("environment").items()) {
      if (name.starts_with("PACECAR_")) setenv(name.c_str(), value.get<std::string>().c_str(), 1);
    }
    return send({{"type", "welcome"},
                 {"protocol", kAgentProtocol},
                 {"release", PACECAR_VERSION},
                 {"machine", machine()}});
  }

  // The same for two host names that are one machine and one network namespace.
  static std::string machine() {
    std::string boot;
    FileDescriptor file(open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC));
    cli::read_pipe(file, boot);
    std::array<char, 64> network{};
    const ssize_t size = readlink("/proc/self/ns/net", network.data(), network.size());
    return boot.substr(0, boot.find('\n')) + " " +
           std::string(network.data(), static_cast<size_t>(std::max<ssize_t>(size, 0)));
  }

  void start(const Json& command) {
    const auto id = command.at("id").get<uint64_t>();
    const bool announces = command.value("announces", false);
    std::vector<std::string> words{kThisProgram};
    for (const Json& word : command.at("arguments")) words.push_back(word.get<std::string>());
    if (announces) words.insert(words.end(), {"--announce", kOutput});
    auto child = cli::Child::execute(words, {});
    if (child) {
      runs_.push_back({.id = id, .child = std::move(*child), .announces = announces});
    } else {
      send_ended(id, cli::kExitFailed, "", "error: " + child.error().message);
    }
  }

  static void send_ended(uint64_t id, int code, const std::string& output,
                         const std::string& errors) {
    send({{"type", "ended"}, {"id", id}, {"code", code}, {"output", output}, {"errors", errors}});
  }

  void stop(uint64_t id) {
    for (Run& run : runs_) {
      if (run.id != id || run.kill_at) continue;
      run.child.signal(SIGTERM);
      run.kill_at = cli::steady_now() + Duration::from_ms(kGraceMs);
    }
  }

  void read_runs() {
    for (auto run = runs_.begin(); run != runs_.end();) {
      const auto status = run->child.ended();  // before its last output is read
      run->child.read();
      if (run->announces) report_address(*run);
      if (run->kill_at && cli::steady_now() > *run->kill_at) run->child.signal(SIGKILL);
      if (!status) {
        ++run;
        continue;
      }
      const int code = status->signal == 0 ? status->code : 128 + status->signal;
      send_ended(run->id, code, run->child.output, run->child.errors);
      run = runs_.erase(run);
    }
  }

  // The first line of a server's output.
  static void report_address(Run& run) {
    const auto line = cli::take_line(run.child.output);
    if (!line) return;
    run.announces = false;
    const size_t space = line->find(' ');
    const auto port = to_number<uint16_t>(std::string_view(*line).substr(space + 1));
    send({{"type", "serving"},
          {"id", run.id},
          {"address", line->substr(0, space)},
          {"port", port.value_or(0)}});
  }

  static bool send(const Json& message) {
    const std::string line = cli::json_line(message);
    return std::fwrite(line.data(), 1, line.size(), stdout) == line.size() &&
           std::fflush(stdout) == 0;
  }

  FileDescriptor input_{dup(STDIN_FILENO)};
  std::string commands_;
  Instant last_message_;
  std::list<Run> runs_;
};

}  // namespace

int run_agent(int argc, char** argv) {
  CLI::App app("One host of --hosts: runs the commands that it reads from its standard input.",
               "pacecar agent");
  app.footer(kFooter);
  return cli::run_subcommand(app, argc, argv, {}, [](const cli::Console&) -> Result<int> {
    std::signal(SIGPIPE, SIG_IGN);  // the parent may be gone
    return Agent().serve();
  });
}

}  // namespace pacecar::hosts
