// All processes of this host as one page of metrics, made for each request.
//
// Thread rule: any thread; one page at a time.
#pragma once

#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "bench/doctor/gather.h"
#include "bench/doctor/job.h"
#include "transport/metrics/exposition.h"

namespace pacecar::metrics {

// Small numbers that distinguish processes of the same program and rank. A process keeps its number
// until it ends; the next one of that kind takes the smallest that is free. So the label that holds
// it has as few values as there were processes at once, whatever came and went. A pid would add one
// with each process.

class ProcessNumbers {
 public:
  // The numbers of these processes, in order; processes that are missing have ended.
  std::vector<size_t> of(const std::vector<doctor::Process>& processes);

 private:
  using Kind = std::string;      // program and rank
  using Identity = std::string;  // what no two processes share, nor one and its successor
  std::map<Kind, std::map<Identity, size_t>> numbers_;
};

// More NICs of processes than a host has, and as many series as Prometheus takes from one target:
// what is beyond is left out, and counted.
constexpr size_t kMaxNics = 1024;

struct Page {
  std::string text;
  std::vector<std::string> warnings;  // of what could not be looked at
};

// `processes` within the bound; numbered where program and rank do not distinguish them.
struct Host {
  std::vector<ProcessFigures> processes;
  size_t silent = 0;
  size_t unreadable = 0;
  size_t nics_left_out = 0;
};
Host host_of(const doctor::Gathered& gathered, ProcessNumbers& numbers);
std::string page_of(const Host& host, Format format);

class Exporter {
 public:
  // Empty: the usual directories, as they are when a page is made.
  explicit Exporter(std::string directory) : directory_(std::move(directory)) {}

  // Takes kAnswerLimit where a process does not answer.
  Page page(Format format);

  // Below the time for which Prometheus waits.
  static constexpr Duration kAnswerLimit = Duration::from_s(3);

 private:
  const std::string directory_;
  std::mutex making_;
  ProcessNumbers numbers_;
};

}  // namespace pacecar::metrics
