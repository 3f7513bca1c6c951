#include "bench/ab/runner.h"

#include <fmt/format.h>
#include <openssl/sha.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <fstream>
#include <span>

#include "bench/ab/process.h"
#include "bench/ab/provenance.h"
#include "bench/ab/report_data.h"
#include "bench/perf/build_info.h"
#include "bench/sim/result_json.h"
#include "bench/sim/run.h"
#include "transport/base/return_if_error.h"

namespace pacecar::ab {
namespace {

// Lines of a failed run's output in its error.
constexpr size_t kShownLines = 3;

// Identifies a run, as 16 hexadecimal digits: a hash of the spec's tables, the topology and
// workload that were made of them (and of the files that they name), the seed, and the program's
// commit.
std::string run_hash(const SpecTable& tables, const RunSpec& spec) {
  const Topology& topology = spec.topology;
  const Workload& workload = spec.workload;
  std::string text =
      fmt::format("{} {} {} {} {} {}", build_commit(), to_text(SpecValue{tables, {}}), spec.seed,
                  topology.hosts, topology.processes, topology.switches);
  for (const Cable& cable : topology.cables) {
    text += fmt::format(";{} {} {} {}", cable.a, cable.b, cable.rate.bps(), cable.delay.ns());
  }
  for (const WorkloadFlow& flow : workload.flows) {
    text += fmt::format(";{} {} {} {} {} {} {} {}", flow.source, flow.destination, flow.bytes,
                        flow.start.ns(), flow.trigger, flow.job, fmt::join(flow.on_sent, ","),
                        fmt::join(flow.on_received, ","));
  }
  for (const WorkloadTrigger& trigger : workload.triggers) {
    text += fmt::format(";{} {}", static_cast<int>(trigger.kind), trigger.count);
  }
  for (const WorkloadJob& job : workload.jobs) text += ";" + job.congestion_control;
  std::array<unsigned char, SHA256_DIGEST_LENGTH> digest;
  SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(), digest.data());
  return fmt::format("{:02x}", fmt::join(std::span(digest).first(8), ""));
}

// In the child: prints the finished record on stdout, errors on stderr.
int simulate(const Plan& plan, RunRecord record, const ResultsFolder& folder) {
  const auto spec = run_spec(plan, record.index);
  const auto result = spec ? run_experiment(*spec) : tl::unexpected(spec.error());
  if (!result) {
    std::fprintf(stderr, "%s\n", result.error().message.c_str());
    return 1;
  }
  std::ofstream detail(folder.file(record.detail));
  detail << run_detail(*result).dump() << '\n';
  if (!detail.flush()) {
    std::fprintf(stderr, "cannot write %s: make room, or choose another folder with --out\n",
                 folder.file(record.detail).c_str());
    return 1;
  }
  record.ok = true;
  record.metrics = run_metrics(*result);
  record.counters = counters_json(*result);
  std::fputs(to_line(record).c_str(), stdout);
  return 0;
}

RunRecord record_of_outcome(RunRecord record, const Outcome& outcome) {
  if (outcome.ok()) {
    if (auto printed = record_from_line(outcome.output)) {
      record = std::move(*printed);
    } else {
      record.error = printed.error().message;
    }
  } else {
    const std::string lines = perf::last_lines(outcome.errors, kShownLines);
    record.error = fmt::format("the run {}{}{}", outcome.cause(), lines.empty() ? "" : ": ", lines);
    std::replace(record.error.begin(), record.error.end(), '\n', ' ');
    record.detail.clear();
  }
  record.wall_seconds = outcome.seconds;
  return record;
}

class Runner {
 public:
  Runner(const Plan& plan, const ResultsFolder& folder, const std::string& command_line)
      : plan_(plan), folder_(folder), provenance_(provenance(command_line)) {}

  // Takes the run's record from `finished` if it is there; else queues the run if it is wanted.
  Result<void> add(size_t run, bool wanted, const std::vector<RunRecord>& finished) {
    if (!wanted && finished.empty()) return {};
    ASSIGN_OR_RETURN(const auto spec, run_spec(plan_, run));
    RunRecord record = record_of(plan_.experiment, run);
    record.spec_hash = run_hash(plan_.specs[run / plan_.experiment.seeds.size()], spec);
    record.detail = ResultsFolder::detail_name(record);
    record.provenance = provenance_;
    // The index may differ: a plan that has grown numbers its runs differently.
    const auto same = std::find_if(finished.begin(), finished.end(), [&](const RunRecord& other) {
      return other.ok && other.arm == record.arm && other.factors == record.factors &&
             other.seed == record.seed && other.spec_hash == record.spec_hash;
    });
    if (same != finished.end()) {
      done_.push_back(*same);
      done_.back().index = run;
    } else if (wanted) {
      waiting_.push_back(std::move(record));
    }
    return {};
  }

  Result<std::vector<RunRecord>> run(size_t jobs, const RunProgressSink& progress) {
    RETURN_IF_ERROR(folder_.write_records(done_));
    const size_t all = done_.size() + waiting_.size();
    Processes processes;
    size_t next = 0;
    while (done_.size() < all) {
      for (; next < waiting_.size() && processes.running() < jobs; ++next) {
        const auto body = [this, next] { return simulate(plan_, waiting_[next], folder_); };
        ASSIGN_OR_RETURN(auto child, perf::Child::run(body));
        processes.add(next, std::move(child), Duration::max());
      }
      const auto ended = processes.wait();
      if (Processes::interrupted()) {
        return fail(
            ErrorCode::kUnavailable,
            fmt::format("interrupted after {} of {} runs: run it again with --resume to continue",
                        done_.size(), all));
      }
      if (ended) {
        done_.push_back(record_of_outcome(std::move(waiting_[ended->first]), ended->second));
        RETURN_IF_ERROR(append_record(folder_.records(), done_.back()));
      }
      progress(done_.size(), all);
    }
    std::ranges::sort(done_, {}, &RunRecord::index);
    return std::move(done_);
  }

 private:
  const Plan& plan_;
  const ResultsFolder& folder_;
  nlohmann::json provenance_;
  std::vector<RunRecord> waiting_;
  std::vector<RunRecord> done_;
};

}  // namespace

Result<std::vector<RunRecord>> run_plan(const Plan& plan, const std::vector<size_t>& runs,
                                        const std::vector<RunRecord>& finished,
                                        const ResultsFolder& folder, size_t jobs,
                                        const std::string& command_line,
                                        const RunProgressSink& progress) {
  Runner runner(plan, folder, command_line);
  for (size_t run = 0; run < plan.experiment.runs(); ++run) {
    const bool wanted = std::binary_search(runs.begin(), runs.end(), run);
    RETURN_IF_ERROR(runner.add(run, wanted, finished));
  }
  return runner.run(jobs, progress);
}

}  // namespace pacecar::ab
