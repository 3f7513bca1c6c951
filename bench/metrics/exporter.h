// The metrics of all processes of this host as one page, made for each request. Thread rule: any
// thread; one page at a time.
#pragma once

#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "bench/doctor/gather.h"
#include "bench/doctor/job.h"
#include "bench/metrics/exposition.h"

namespace pacecar::metrics {

// Small numbers that distinguish processes of the same program and rank. A process keeps its number
// until it ends; the next one takes the smallest that is free. So the label with this number has as
// few values as processes ran at once; with the pid it would get a new value from each process.
class ProcessNumbers {
 public:
  // The numbers of these processes, in order; processes that are missing have ended.
  std::vector<size_t> of(const std::vector<doctor::Process>& processes);

 private:
  using Kind = std::pair<std::string, std::optional<uint64_t>>;  // program and rank
  using Process = std::pair<Kind, std::string>;  // and an identity that no other process ever has
  std::map<Process, size_t> numbers_;
};

// More NICs than the processes of a host use, and as many series as Prometheus takes from one
// target. Further NICs are left out, and counted.
constexpr size_t kMaxNics = 1024;

struct Page {
  std::string text;
  std::vector<std::string> warnings;  // about directories and answers that could not be read
};

// `processes` within the bound; numbered where program and rank do not distinguish them.
struct Host {
  std::vector<ProcessFigures> processes;
  size_t silent = 0;
  size_t unreadable = 0;
  size_t nics_left_out = 0;
};
Host host_of(const doctor::Gathered& gathered, ProcessNumbers& numbers);
std::string page_of(const Host& host);

class Exporter {
 public:
  // Takes kAnswerLimit if a process does not answer.
  Page page();

  // Below the time for which Prometheus waits.
  static constexpr Duration kAnswerLimit = Duration::from_s(3);

 private:
  std::mutex making_;
  ProcessNumbers numbers_;
};

}  // namespace pacecar::metrics
