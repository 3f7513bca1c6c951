#include "transport/io/dpdk/eal.h"

#include <fmt/format.h>
#include <rte_alarm.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_log.h>
#include <sched.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <future>
#include <iterator>
#include <sstream>
#include <vector>

#include "transport/base/check.h"
#include "transport/base/units.h"

namespace pacecar {
namespace {

// Address space; only pages of packets take memory.
constexpr const char* kMegabytesWithoutHugePages = "1024";
// Enough for a few devices (a NIC with jumbo frames 35 MB). With fewer free, a
// start with huge pages could fail, and one without them would not.
constexpr Bytes kEnoughHugePages = 128 << 20;
constexpr size_t kMaxOutput = 16384;

std::mutex output_mutex;
std::string output;

// DPDK's threads may log at any time; messages outside of an operation are dropped.
ssize_t take_output(void* /*cookie*/, const char* text, size_t length) {
  const std::lock_guard lock(output_mutex);
  if (output.size() + length <= kMaxOutput) output.append(text, length);
  return static_cast<ssize_t>(length);
}

void collect_eal_output() {
  std::FILE* const stream = fopencookie(
      nullptr, "w", {.read = nullptr, .write = take_output, .seek = nullptr, .close = nullptr});
  PACECAR_CHECK(stream != nullptr);
  setvbuf(stream, nullptr, _IOLBF, 0);
  rte_openlog_stream(stream);  // open until the process ends
}

Bytes free_huge_pages() {
  Bytes bytes = 0;
  std::error_code error;
  for (const auto& size : std::filesystem::directory_iterator("/sys/kernel/mm/hugepages", error)) {
    unsigned kib = 0;
    uint64_t count = 0;
    if (std::sscanf(size.path().filename().c_str(), "hugepages-%ukB", &kib) == 1 &&
        std::ifstream(size.path() / "free_hugepages") >> count) {
      bytes += count * kib << 10;
    }
  }
  return bytes;
}

std::vector<std::string> split(const std::string& text) {
  std::istringstream stream(text);
  return {std::istream_iterator<std::string>(stream), {}};
}

std::vector<std::string> own_arguments(const cpu_set_t& cpus, bool pci, const LogSink& log) {
  int cpu = 0;
  while (cpu + 1 < CPU_SETSIZE && !CPU_ISSET(cpu, &cpus)) ++cpu;
  // The engine starts its own threads: the EAL gets only the caller's thread.
  std::vector<std::string> arguments = {fmt::format("--lcores=0@{}", cpu), "--no-telemetry"};
  if (!pci) arguments.emplace_back("--no-pci");
  if (free_huge_pages() >= kEnoughHugePages) {
    // In few files: a virtio NIC shares at most eight with its host.
    arguments.insert(arguments.end(), {"--in-memory", "--single-file-segments"});
  } else {
    log(LogLevel::kInfo,
        "DPDK runs without huge pages: less than 128 MiB of them are free ('echo 512 > "
        "/proc/sys/vm/nr_hugepages' reserves 1 GiB)");
    arguments.insert(arguments.end(),
                     {"--no-shconf", "--no-huge", "-m", kMegabytesWithoutHugePages});
  }
  return arguments;
}

using Task = std::packaged_task<void()>;

// `task` must live until it has run, on the interrupt thread.
bool set_alarm(Task& task, std::chrono::microseconds delay) {
  const auto run = [](void* own) { (*static_cast<Task*>(own))(); };
  return rte_eal_alarm_set(static_cast<uint64_t>(delay.count()), run, &task) == 0;
}

Result<void> start(const std::string& arguments, bool pci, const LogSink& log) {
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  const bool known = sched_getaffinity(0, sizeof cpus, &cpus) == 0;
  std::vector<std::string> parts =
      arguments.empty() ? own_arguments(cpus, pci, log) : split(arguments);
  parts.insert(parts.begin(), "pacecar");
  std::vector<char*> argv;
  for (std::string& part : parts) argv.push_back(part.data());
  collect_eal_output();
  const EalOutput collected(log);
  const WithoutPipeSignal quiet;
  const int done = rte_eal_init(static_cast<int>(argv.size()), argv.data());
  const int error = rte_errno;
  if (known) sched_setaffinity(0, sizeof cpus, &cpus);
  if (done >= 0) return {};
  const std::string cause = collected.last(rte_strerror(error));
  if (error == EACCES || error == EPERM) {
    return fail(ErrorCode::kPermission,
                fmt::format("DPDK may not start ({}): run as root, or give this user huge pages "
                            "and the device's /dev/vfio group",
                            cause));
  }
  return fail(
      ErrorCode::kSystem,
      fmt::format("DPDK does not start ({}): {}", cause,
                  arguments.empty() ? "give arguments that suit this host in PACECAR_DPDK_EAL, "
                                      "such as '--no-huge --no-shconf --no-pci -m 1024'"
                                    : fmt::format("check PACECAR_DPDK_EAL='{}'", arguments)));
}

sigset_t pipe_signal() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGPIPE);
  return set;
}

bool is_pending() {
  sigset_t pending;
  return sigpending(&pending) == 0 && sigismember(&pending, SIGPIPE) == 1;
}

}  // namespace

std::mutex& eal_mutex() {
  static std::mutex mutex;
  return mutex;
}

void run_on_interrupt_thread(const std::function<void()>& work) {
  using namespace std::chrono_literals;
  Task last(work);
  // An alarm that is due when another one ends runs at once, before events of descriptors. So
  // whatever these events have deferred by an alarm is done before `last`.
  Task first([&] {
    if (!set_alarm(last, 1us)) return last();
    const auto due = std::chrono::steady_clock::now() + 3us;
    while (std::chrono::steady_clock::now() < due) {
    }
  });
  if (!set_alarm(first, 1us)) return work();  // no memory for an alarm
  first.get_future().wait();
  last.get_future().wait();
  // Earlier events of that thread may refer to descriptors that are closed now. Wait until these
  // are processed, before other descriptors with the same numbers are opened.
  Task settled([] {});
  if (set_alarm(settled, 200us)) settled.get_future().wait();
}

WithoutPipeSignal::WithoutPipeSignal() : was_pending_(is_pending()) {
  const sigset_t set = pipe_signal();
  pthread_sigmask(SIG_BLOCK, &set, &before_);
}

WithoutPipeSignal::~WithoutPipeSignal() {
  const sigset_t set = pipe_signal();
  const timespec now{};
  if (!was_pending_ && is_pending()) sigtimedwait(&set, nullptr, &now);
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

EalOutput::EalOutput(const LogSink& log) : log_(log) {
  const std::lock_guard lock(output_mutex);
  output.clear();
}

EalOutput::~EalOutput() {
  const std::lock_guard lock(output_mutex);
  std::istringstream lines(output);
  for (std::string line; std::getline(lines, line);) log_(LogLevel::kTrace, "DPDK: " + line);
  output.clear();
}

std::string EalOutput::from_driver(std::string_view otherwise) const {
  const std::lock_guard lock(output_mutex);
  std::istringstream lines(output);
  std::string chosen;
  for (std::string line; std::getline(lines, line);) {
    if (chosen.empty() || !line.starts_with("EAL:")) chosen = line;
  }
  return chosen.empty() ? std::string(otherwise) : chosen;
}

std::string EalOutput::last(std::string_view otherwise) const {
  const std::lock_guard lock(output_mutex);
  std::string_view text = output;
  while (text.ends_with('\n')) text.remove_suffix(1);
  text = text.substr(text.rfind('\n') + 1);
  return std::string(text.empty() ? otherwise : text);
}

Result<void> start_eal(const std::string& arguments, bool pci, const LogSink& log) {
  const std::lock_guard lock(eal_mutex());
  static const Result<void> outcome = start(arguments, pci, log);
  static const pid_t own = getpid();
  if (getpid() != own) {
    return fail(
        ErrorCode::kUnavailable,
        "a process that was forked from one with DPDK cannot start it: start a new program");
  }
  static const bool takes_pci = pci || !arguments.empty();
  if (outcome && pci && !takes_pci) {
    return fail(ErrorCode::kInvalidArgument,
                "DPDK has been started for virtual devices only: name a PCI device first in "
                "PACECAR_NICS, or give EAL arguments in PACECAR_DPDK_EAL");
  }
  return outcome;
}

}  // namespace pacecar
