// `pacecar agent`: one host of `--hosts`, started there by ssh, srun or kubectl. Runs subcommands
// of this program, by commands on its standard input (agent_protocol.h), and ends with that input.
#include <fcntl.h>
#include <fmt/core.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <csignal>
#include <cstdlib>
#include <list>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "bench/hosts/agent_protocol.h"
#include "bench/hosts/child.h"
#include "bench/perf/clock.h"
#include "bench/perf/command_line.h"
#include "bench/perf/console.h"
#include "bench/perf/json_fields.h"
#include "bench/perf/subcommands.h"

namespace pacecar::hosts {
namespace {

using Json = nlohmann::json;

constexpr const char* kThisProgram = "/proc/self/exe";
constexpr int kTurnMs = 1000;
constexpr size_t kMaxKept = 32U << 20;  // of one run's output

constexpr const char* kFooter =
    R"(Nobody needs to start it by hand: 'pacecar bw', 'lat', 'preflight', 'doctor' and 'top' with
--hosts start it on each host, and send commands to its standard input. When that input ends, the
agent ends, with everything that it has started.)";

struct Run {
  uint64_t id = 0;
  Child child;
  FileDescriptor announced;  // a server's announced address
  std::string announcement;
  std::string output;
  std::string errors;
  std::optional<Instant> kill_at;  // set when it is stopped
};

class Agent {
 public:
  // Serves until the standard input ends.
  int serve() {
    last_message_ = perf::steady_now();
    while (turn() && perf::steady_now() - last_message_ < kSilence) {
    }
    for (Run& run : runs_) run.child.signal(SIGTERM);
    for (Run& run : runs_) run.child.end(kGraceMs);
    return perf::kExitOk;
  }

 private:
  bool turn() {
    std::vector<pollfd> waiting{{STDIN_FILENO, POLLIN, 0}};
    for (const Run& run : runs_) {
      for (const FileDescriptor* one : {&run.child.output(), &run.child.errors(), &run.announced}) {
        waiting.push_back({one->get(), POLLIN, 0});
      }
    }
    // With a timeout, for runs that have closed their pipes and continue.
    poll(waiting.data(), waiting.size(), runs_.empty() ? kTurnMs : kTurnMs / 10);
    read_runs();
    return waiting[0].revents == 0 || read_commands();
  }

  bool read_commands() {
    const bool more = read_some(input_, commands_);
    last_message_ = perf::steady_now();
    const auto take = [this](std::string_view line) {
      const Json command = perf::parse_json(line);
      return command.is_object() && execute(command);
    };
    return take_lines(commands_, take) && more;
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
    const FileDescriptor file(open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC));
    if (file) read_some(file, boot);
    std::array<char, 64> network{};
    const ssize_t size = readlink("/proc/self/ns/net", network.data(), network.size());
    return boot.substr(0, boot.find('\n')) + " " +
           std::string(network.data(), static_cast<size_t>(std::max<ssize_t>(size, 0)));
  }

  void start(const Json& command) {
    const uint64_t id = command.at("id").get<uint64_t>();
    std::vector<std::string> words{kThisProgram};
    for (const Json& word : command.at("arguments")) words.push_back(word.get<std::string>());
    Pipe announces{FileDescriptor(), FileDescriptor()};
    if (command.value("announces", false)) {
      auto made = make_pipe();
      if (!made) return end_unstarted(id, made.error());
      announces = std::move(*made);
      fcntl(announces.read.get(), F_SETFL, O_NONBLOCK);
      words.insert(words.end(),
                   {"--announce", fmt::format("/proc/self/fd/{}", announces.write.get())});
    }
    auto child = Child::start(words, {.input = false, .kept = announces.write.get()});
    if (!child) return end_unstarted(id, child.error());
    runs_.push_back({id, std::move(*child), std::move(announces.read), {}, {}, {}, {}});
  }

  static void send_ended(uint64_t id, int code, const std::string& output,
                         const std::string& errors) {
    send({{"type", "ended"}, {"id", id}, {"code", code}, {"output", output}, {"errors", errors}});
  }

  static void end_unstarted(uint64_t id, const Error& why) {
    send_ended(id, perf::kExitFailed, "", "error: " + why.message);
  }

  void stop(uint64_t id) {
    for (Run& run : runs_) {
      if (run.id != id || run.kill_at) continue;
      run.child.signal(SIGTERM);
      run.kill_at = perf::steady_now() + Duration::from_ms(kGraceMs);
    }
  }

  void read_runs() {
    for (auto run = runs_.begin(); run != runs_.end();) {
      const auto status = run->child.ended();  // read before its output
      read_all(run->child.output(), run->output);
      read_all(run->child.errors(), run->errors);
      if (run->announced) read_announcement(*run);
      if (run->kill_at && perf::steady_now() > *run->kill_at) run->child.signal(SIGKILL);
      if (!status) {
        ++run;
        continue;
      }
      const int code = WIFEXITED(*status) ? WEXITSTATUS(*status) : 128 + WTERMSIG(*status);
      send_ended(run->id, code, run->output, run->errors);
      run = runs_.erase(run);
    }
  }

  // Reads until nothing is left.
  static void read_all(const FileDescriptor& from, std::string& to) {
    for (size_t before = to.size() + 1; to.size() != before && to.size() < kMaxKept;) {
      before = to.size();
      read_some(from, to);
    }
  }

  void read_announcement(Run& run) {
    const bool more = read_some(run.announced, run.announcement);
    const size_t end = run.announcement.find('\n');
    const size_t space = run.announcement.find(' ');
    uint16_t port = 0;
    if (end != std::string::npos && space < end) {
      std::from_chars(run.announcement.data() + space + 1, run.announcement.data() + end, port);
      send({{"type", "serving"},
            {"id", run.id},
            {"address", run.announcement.substr(0, space)},
            {"port", port}});
    }
    if (!more || port != 0) run.announced = FileDescriptor();
  }

  static bool send(const Json& message) {
    const std::string line = perf::json_line(message);
    return std::fwrite(line.data(), 1, line.size(), stdout) == line.size() &&
           std::fflush(stdout) == 0;
  }

  const FileDescriptor input_{dup(STDIN_FILENO)};
  std::string commands_;
  Instant last_message_;
  std::list<Run> runs_;
};

}  // namespace

int run_agent(int argc, char** argv) {
  CLI::App app("One host of --hosts: runs the commands that it reads from its standard input.",
               "pacecar agent");
  app.footer(kFooter);
  return perf::run_subcommand(app, argc, argv, {}, [](const perf::Console&) -> Result<int> {
    std::signal(SIGPIPE, SIG_IGN);  // the parent may be gone
    return Agent().serve();
  });
}

}  // namespace pacecar::hosts
