#include "bench/predict/answers.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <nlohmann/json.hpp>
#include <thread>

#include "bench/ab/report/report.h"

namespace pacecar {
std::span<const PagePart> predict_page_parts();  // by the build
}  // namespace pacecar

namespace pacecar::predict {
namespace {

constexpr double kGiga = 1e-9;

// NVLS needs its switch in every host.
bool possible(const Description& asked, const Collective& what) {
  const bool nvls = what.algorithm == Algorithm::kNvls || what.algorithm == Algorithm::kNvlsTree;
  return supported(what.operation, what.algorithm) &&
         (!nvls || std::ranges::all_of(asked.cluster.groups, &HostGroup::nvls));
}

std::string limit_of(const Prediction& found) {
  const double share = found.terms[static_cast<size_t>(found.bottleneck)] / found.time_s;
  return fmt::format("{} {:.0f}%", name_of(found.bottleneck), 100 * share);
}

std::vector<Collective> choices(const Description& asked) {
  std::vector<Collective> found;
  for (const Operation operation : asked.operations) {
    for (const Bytes size : asked.sizes) {
      for (const Algorithm algorithm : asked.algorithms) {
        for (const Protocol protocol : asked.protocols) {
          Collective what = asked.like;
          what.operation = operation;
          what.algorithm = algorithm;
          what.protocol = protocol;
          what.bytes = size;
          if (!possible(asked, what)) continue;
          found.push_back(what);
        }
      }
    }
  }
  return found;
}

// A prediction for many hosts takes seconds: each processor makes some.
void predict_all(const Description& asked, std::vector<Answer>& answers) {
  std::atomic<size_t> next = 0;
  const auto work = [&] {
    for (size_t i = next++; i < answers.size(); i = next++) {
      answers[i].prediction = predict(asked.cluster, answers[i].collective, asked.overheads);
    }
  };
  const size_t workers = std::min<size_t>(answers.size(), std::thread::hardware_concurrency());
  std::vector<std::jthread> others;
  for (size_t i = 1; i < workers; ++i) others.emplace_back(work);
  work();
}

bool same_question(const Answer& a, const Answer& b) {
  return a.collective.operation == b.collective.operation &&
         a.collective.bytes == b.collective.bytes;
}

}  // namespace

std::vector<Answer> answers_to(const Description& asked) {
  std::vector<Answer> answers;
  for (const Collective& what : choices(asked)) answers.push_back({what, {}});
  predict_all(asked, answers);
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

std::string table_of(const Description& asked, const std::vector<Answer>& answers) {
  const Cluster& cluster = asked.cluster;
  std::string text =
      fmt::format("# {} hosts of {} GPUs and {} NICs: {} ranks\n", cluster.hosts(),
                  cluster.groups[0].gpus, cluster.groups[0].nics.size(), ranks_of(cluster, {}));
  text +=
      fmt::format("#{:>13} {:>13} {:>12} {:>8} {:>13} {:>10} {:>10}    {}\n", "size", "operation",
                  "algorithm", "protocol", "time", "algbw", "busbw", "what takes the time");
  text += fmt::format("#{:>13} {:>13} {:>12} {:>8} {:>13} {:>10} {:>10}\n", "(B)", "", "", "",
                      "(us)", "(GB/s)", "(GB/s)");
  for (const auto& [what, found, best] : answers) {
    text += fmt::format(" {:>13} {:>13} {:>12} {:>8} {:>13.2f} {:>10.2f} {:>10.2f}  {} {}\n",
                        what.bytes, name_of(what.operation), name_of(what.algorithm),
                        name_of(what.protocol), found.time_s * 1e6, found.algorithm_rate * kGiga,
                        found.bus_rate * kGiga, best ? '*' : ' ', limit_of(found));
  }
  return text;
}

nlohmann::json document_of(const Description& asked, const std::vector<Answer>& answers) {
  nlohmann::json results = nlohmann::json::array();
  for (const auto& [what, found, best] : answers) {
    nlohmann::json terms = nlohmann::json::object();
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
                       {"best", best}});
  }
  return {{"schema_version", 1},
          {"hosts", asked.cluster.hosts()},
          {"ranks", ranks_of(asked.cluster, {})},
          {"results", results}};
}

std::string page_of_answers(const nlohmann::json& document) {
  return page_of(predict_page_parts(), "predict.html", document);
}

}  // namespace pacecar::predict
