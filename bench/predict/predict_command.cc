#include <fmt/core.h>
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "bench/ab/report/report.h"
#include "bench/cli/command_line.h"
#include "bench/cli/console.h"
#include "bench/cli/files.h"
#include "bench/cli/subcommands.h"
#include "bench/predict/description.h"
#include "bench/sim/spec_value.h"
#include "net_plugin/predict/predict.h"
#include "transport/base/invalid.h"
#include "transport/base/result.h"
#include "transport/base/return_if_error.h"
#include "transport/base/start_thread.h"

namespace pacecar {

std::span<const PagePart> predict_page_parts();  // by the build

namespace {

using namespace predict;
using cli::Console;
using Json = nlohmann::json;

struct Answer {
  Collective collective;
  Prediction prediction;
  bool best = false;  // for its operation and size
};

constexpr double kGiga = 1e-9;
constexpr double kBitsPerByte = 8;

// On all processors, as a prediction for many hosts takes seconds.
void predict_all(const Description& asked, const Console& console, std::vector<Answer>& answers) {
  std::atomic<size_t> next = 0;
  cli::ProgressBar bar(console.interactive());
  const auto predict_one = [&](size_t i) {
    answers[i].prediction = predict::predict(asked.cluster, answers[i].collective, asked.overheads);
  };
  const auto work = [&] {
    for (size_t i = next++; i < answers.size(); i = next++) predict_one(i);
  };
  const size_t workers = std::min<size_t>(answers.size(), std::thread::hardware_concurrency());
  std::vector<std::jthread> others;
  for (size_t i = 1; i < workers; ++i) {
    others.push_back(start_thread<std::jthread>("predicts", work));
  }
  // This thread draws.
  for (size_t i = next++; i < answers.size(); i = next++) {
    predict_one(i);
    bar.show(i, answers.size(), "predictions");
  }
}

bool same_question(const Answer& a, const Answer& b) {
  return a.collective.operation == b.collective.operation &&
         a.collective.bytes == b.collective.bytes;
}

// In the order of the description's operations and sizes.
std::vector<Answer> answers_to(const Description& asked, const Console& console) {
  std::vector<Answer> answers;
  for (const Operation operation : asked.operations) {
    for (const Bytes size : asked.sizes) {
      for (const Algorithm algorithm : asked.algorithms) {
        for (const Protocol protocol : asked.protocols) {
          Collective what = asked.like;
          what.operation = operation;
          what.algorithm = algorithm;
          what.protocol = protocol;
          what.bytes = size;
          // Otherwise some peers would get nothing.
          const bool enough =
              operation != Operation::kAllToAll || size >= ranks_of(asked.cluster, what);
          if (enough && possible(asked.cluster, what)) answers.push_back({.collective = what});
        }
      }
    }
  }
  predict_all(asked, console, answers);
  for (auto begin = answers.begin(); begin != answers.end();) {
    const auto end = std::find_if_not(
        begin, answers.end(), [&](const Answer& answer) { return same_question(*begin, answer); });
    std::ranges::min_element(begin, end, {}, [](const Answer& answer) {
      return answer.prediction.time_s;
    })->best = true;
    begin = end;
  }
  return answers;
}

std::string topology_of(const Cluster& cluster) {
  const Fabric& fabric = cluster.fabric;
  const HostGroup& group = cluster.groups[0];
  const NicKind& nic = cluster.nic_kinds[group.nics[0]];
  const std::string leaves =
      fabric.hosts_per_leaf == 0
          ? "one switch"
          : fmt::format("{} of {} hosts, {}:1 above", fabric.rails ? "rail leaves" : "leaves",
                        fabric.hosts_per_leaf, fabric.oversubscription);
  return fmt::format("{} hosts of {} GPUs and {} NICs ({:.4g} Gb/s): {} ranks; {}", cluster.hosts(),
                     group.gpus, group.nics.size(), nic.rate * kGiga * kBitsPerByte,
                     ranks_of(cluster, {}), leaves);
}

std::string assumptions_of(const Description& asked) {
  const auto step_us = [&](Protocol protocol) { return asked.overheads.of(protocol).step_s * 1e6; };
  return fmt::format(
      "assumed, not measured: {} us per step of Simple, {} of LL, {} of LL128; NVLink {:.4g} GB/s; "
      "no loss. Errors are known for 8 KB to 256 MB",
      step_us(Protocol::kSimple), step_us(Protocol::kLl), step_us(Protocol::kLl128),
      asked.cluster.groups[0].nvlink_rate * kGiga);
}

constexpr ptrdiff_t kMostChoices = 32;

// Columns as in nccl-tests, then the bottleneck; '*' marks the best choice. A few best choices
// follow once more, as comments.
std::string table_of(const Description& asked, const std::vector<Answer>& answers) {
  std::string text = fmt::format("# {}\n# {}\n", topology_of(asked.cluster), assumptions_of(asked));
  text +=
      fmt::format("#{:>13} {:>13} {:>12} {:>8} {:>13} {:>10} {:>10}    {}\n", "size", "operation",
                  "algorithm", "protocol", "time", "algbw", "busbw", "what takes the time");
  text += fmt::format("#{:>13} {:>13} {:>12} {:>8} {:>13} {:>10} {:>10}\n", "(B)", "", "", "",
                      "(us)", "(GB/s)", "(GB/s)");
  std::string choices;
  for (const auto& [what, found, best] : answers) {
    const double share = found.terms[static_cast<size_t>(found.bottleneck)] / found.time_s;
    const std::string row = fmt::format(
        "{:>13} {:>13} {:>12} {:>8} {:>13.2f} {:>10.2f} {:>10.2f}  {} {} {:.0f}%\n", what.bytes,
        name_of(what.operation), name_of(what.algorithm), name_of(what.protocol),
        found.time_s * 1e6, found.algorithm_rate * kGiga, found.bus_rate * kGiga, best ? '*' : ' ',
        name_of(found.bottleneck), 100 * share);
    text += " " + row;
    if (best) choices += "#" + row;
  }
  const auto count = std::ranges::count(answers, true, &Answer::best);
  const bool chosen = count < std::ssize(answers) && count <= kMostChoices;
  return chosen ? text + "# best of each size\n" + choices : text;
}

// Times in microseconds, rates in GB/s.
Json document_of(const Description& asked, const std::vector<Answer>& answers) {
  Json results = Json::array();
  for (const auto& [what, found, best] : answers) {
    Json terms = Json::object();
    for (size_t i = 0; i < kCauses; ++i) {
      if (found.terms[i] > 0)
        terms[std::string(name_of(static_cast<Cause>(i)))] = found.terms[i] * 1e6;
    }
    results.push_back({{"size", what.bytes},
                       {"operation", name_of(what.operation)},
                       {"algorithm", name_of(what.algorithm)},
                       {"protocol", name_of(what.protocol)},
                       {"time_us", found.time_s * 1e6},
                       {"algbw_gb_s", found.algorithm_rate * kGiga},
                       {"busbw_gb_s", found.bus_rate * kGiga},
                       {"bottleneck", name_of(found.bottleneck)},
                       {"terms_us", terms},
                       {"messages", found.messages.count},
                       {"message_bytes", found.messages.bytes},
                       {"best", best}});
  }
  return {{"schema_version", 1},
          {"hosts", asked.cluster.hosts()},
          {"ranks", ranks_of(asked.cluster, {})},
          {"topology", topology_of(asked.cluster)},
          {"assumed", assumptions_of(asked)},
          {"results", results}};
}

constexpr const char* kFooter = R"(Examples:
  pacecar predict --hosts 64 --gpus 8 --nics 400G --op allreduce --sizes 8:16G:x4
  pacecar predict --hosts 12500 --set topology.hosts_per_leaf=32 --set topology.oversubscription=2
  pacecar predict cluster.toml --html plot.html
bench/predict/README.md lists the tables and keys of a file, and what is measured or assumed.
Exit codes: 0 success, 2 wrong usage.)";

// A flag that sets a key of the file.
struct KeyFlag {
  const char* flag;
  const char* key;
  const char* help;  // null: it is not listed
  bool text;         // the value is a string, not TOML
};
constexpr std::array kKeyFlags = {
    KeyFlag{"--hosts", "topology.hosts", "hosts", false},
    KeyFlag{"--gpus", "host.gpus", "GPUs of a host", false},
    KeyFlag{"--nics", "host.nics", "NICs of a host: [\"400G\", \"200G\"], or 400G for each GPU",
            false},
    KeyFlag{"--op", "collective.op", "operations, such as allreduce,alltoall, or all", true},
    KeyFlag{"--sizes", "collective.sizes", "FROM:TO:xFACTOR or a list, as 8:16G:x4", true},
    KeyFlag{"--topology", "topology.kind", "leaf-spine, rail, star", true},
    KeyFlag{"--algorithm", "collective.algorithm", "algorithms, such as ring,tree, or all", true},
    KeyFlag{"--protocol", "collective.protocol", "Simple, LL, LL128, or all", true},
    KeyFlag{"--hosts-per-leaf", "topology.hosts_per_leaf", nullptr, false},
    KeyFlag{"--oversubscription", "topology.oversubscription", nullptr, false},
};

struct Flags {
  std::vector<std::string> files;
  std::array<std::string, kKeyFlags.size()> keys;
  std::vector<std::string> settings;
  std::string json_file;
  std::string html_file;
};

void add_flags(CLI::App& app, Flags& flags) {
  app.add_option("FILES", flags.files,
                 "TOML of the cluster and the collectives; later files override earlier ones");
  for (size_t i = 0; i < kKeyFlags.size(); ++i) {
    const KeyFlag& key = kKeyFlags[i];
    auto* option = app.add_option(key.flag, flags.keys[i], key.help == nullptr ? "" : key.help);
    if (key.help == nullptr) option->group(cli::kSilent);
  }
  app.add_option("--set", flags.settings, "set any key of the file, as topology.delay=500ns");
  cli::add_json_flag(app, flags.json_file, "write all figures");
  app.add_option("--html", flags.html_file, "write a page with plots");
  app.footer(kFooter);
}

// The files, overridden by the flags, and these by --set.
Result<SpecTable> tables_of(const Flags& flags) {
  ASSIGN_OR_RETURN(auto tables, read_specs(flags.files));
  for (size_t i = 0; i < kKeyFlags.size(); ++i) {
    if (flags.keys[i].empty()) continue;
    RETURN_IF_ERROR(
        kKeyFlags[i].text
            ? set_spec(tables, kKeyFlags[i].key, SpecValue{.value = flags.keys[i], .place = {}})
            : set_spec(tables, fmt::format("{}={}", kKeyFlags[i].key, flags.keys[i])));
  }
  RETURN_IF_ERROR(set_specs(tables, flags.settings));
  return tables;
}

Result<void> answer(const Flags& flags, const Console& console) {
  for (const std::string& file : {flags.json_file, flags.html_file}) {
    RETURN_IF_ERROR(cli::check_writable(file));
  }
  ASSIGN_OR_RETURN(const auto tables, tables_of(flags));
  ASSIGN_OR_RETURN(const auto asked, read_description(tables));
  const auto answers = answers_to(asked, console);
  if (answers.empty()) {
    return invalid(
        "none of these operations has one of these algorithms: leave --algorithm out to "
        "see those that each has (nvls needs host.nvls=true), and give an alltoall at least a "
        "byte for each rank");
  }
  const auto document = document_of(asked, answers);
  if (!flags.json_file.empty()) {
    RETURN_IF_ERROR(cli::write_json(flags.json_file, document));
  }
  if (!flags.html_file.empty()) {
    RETURN_IF_ERROR(
        cli::write_text(flags.html_file, page_of(predict_page_parts(), "predict.html", document)));
  }
  if (!console.quiet() && flags.json_file != cli::kStandardOutput) {
    fmt::print("{}", table_of(asked, answers));
  }
  return {};
}

}  // namespace

int run_predict(int argc, char** argv) {
  Flags flags;
  CLI::App app("Predicts how long collectives take on a described cluster, and what limits them.",
               "pacecar predict");
  add_flags(app, flags);
  return cli::run_subcommand(
      app, argc, argv,
      {.hints = {.reads_json = true}, .exit_code = [](const Error&) { return cli::kExitUsage; }},
      [&](const Console& console) { return answer(flags, console); });
}

}  // namespace pacecar
