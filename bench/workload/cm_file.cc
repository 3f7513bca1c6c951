#include "bench/workload/cm_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "transport/base/invalid.h"
#include "transport/base/return_if_error.h"
#include "transport/sim/text_file.h"

namespace pacecar {
namespace {

constexpr uint64_t kMaxHosts = 1 << 20;
constexpr uint64_t kMaxNumber = kNoTrigger - 1;  // of flows and triggers
constexpr uint64_t kMaxBytes = uint64_t{1} << 48;
constexpr double kMaxStartUs = 1e12;
constexpr std::string_view kNodes = "Nodes";
constexpr std::string_view kConnections = "Connections";
constexpr std::string_view kTriggers = "Triggers";

class CmFile {
 public:
  explicit CmFile(const std::string& file) : file_(file) { workload_.name = file; }

  Result<Workload> parse(std::string_view text) {
    const std::vector<TextLine> lines = text_lines(text);
    // Flows are read last: they may name triggers that later lines define.
    for (const TextLine& line : lines) {
      if (is_flow(line)) continue;
      RETURN_IF_ERROR(line.words[0] == "trigger" ? take_trigger(line) : take_header(line));
    }
    workload_.hosts = static_cast<uint32_t>(headers_[kNodes].number);
    if (workload_.hosts == 0) {
      return invalid("{}: the number of hosts is missing; add a line 'Nodes N'", file_);
    }
    for (const TextLine& line : lines) {
      if (!is_flow(line)) continue;
      RETURN_IF_ERROR(take_flow(line));
    }
    RETURN_IF_ERROR(check_all());
    return std::move(workload_);
  }

 private:
  struct Header {
    size_t line = 0;  // 0: not given
    uint64_t number = 0;
  };

  static bool is_flow(const TextLine& line) {
    return line.words[0].find("->") != std::string_view::npos;
  }

  tl::unexpected<Error> bad(const TextLine& line, const std::string& reason) const {
    return bad_line(file_, line.number, reason);
  }

  Result<void> take_header(const TextLine& line) {
    const std::string_view name = line.words[0];
    if (name == "Failures" || name == "failure") {
      return bad(line, "failures belong to the experiment; remove them here and give them there");
    }
    const auto header = headers_.find(name);
    if (header == headers_.end()) {
      return bad(line, fmt::format("'{}' begins no line of a .cm file; write Nodes, Connections, "
                                   "Triggers, 'SOURCE->DESTINATION ...' or 'trigger ...'",
                                   shown(name)));
    }
    const uint64_t max = name == kNodes ? kMaxHosts : kMaxNumber;
    const auto number =
        line.words.size() == 2 ? parse_number(line.words[1], max) : std::optional<uint64_t>();
    if (!number || (name == kNodes && *number == 0)) {
      return bad(line, fmt::format("write {} and one whole number up to {}", name, max));
    }
    header->second = {line.number, *number};
    return {};
  }

  Result<void> take_trigger(const TextLine& line) {
    std::optional<uint64_t> id;
    std::optional<uint64_t> count;
    std::optional<WorkloadTrigger::Kind> kind;
    constexpr std::string_view kKinds[] = {"oneshot", "multishot", "barrier"};  // by Kind
    for (size_t i = 1; i < line.words.size(); ++i) {
      const std::string_view word = line.words[i];
      if (const auto found = std::ranges::find(kKinds, word); found != std::end(kKinds)) {
        kind = static_cast<WorkloadTrigger::Kind>(found - kKinds);
      } else if ((word == "id" || word == "count") && i + 1 < line.words.size()) {
        (word == "id" ? id : count) = parse_number(line.words[++i], kMaxNumber);
      } else {
        return bad(line, fmt::format("'{}' is not part of a trigger; write 'trigger id N' and "
                                     "oneshot, multishot or 'barrier count N'",
                                     shown(word)));
      }
    }
    if (id.value_or(0) == 0) return bad(line, "the trigger has no id; give it one from 1 on");
    if (!kind)
      return bad(line, "the trigger has no kind; write oneshot, multishot or 'barrier count N'");
    const bool is_barrier = kind == WorkloadTrigger::Kind::kBarrier;
    if (is_barrier != (count.value_or(0) > 0)) {
      return bad(line, is_barrier ? "a barrier needs 'count N', at least 1"
                                  : "only a barrier has a count; remove it");
    }
    const auto [known, is_new] = trigger_index_.try_emplace(
        static_cast<uint32_t>(*id), static_cast<uint32_t>(workload_.triggers.size()));
    if (!is_new) return bad(line, fmt::format("trigger {} was given already; keep one", *id));
    workload_.triggers.push_back(
        {.kind = *kind, .count = static_cast<uint32_t>(count.value_or(1))});
    return {};
  }

  Result<uint32_t> host_of(const TextLine& line, std::string_view word) const {
    const auto host = parse_number(word, kMaxHosts);
    if (host && *host < workload_.hosts) return static_cast<uint32_t>(*host);
    return bad(line, fmt::format("'{}' is not a host; begin the line with SOURCE->DESTINATION, two "
                                 "numbers below Nodes ({})",
                                 shown(word), workload_.hosts));
  }

  Result<void> take_flow(const TextLine& line) {
    const size_t arrow = line.words[0].find("->");
    ASSIGN_OR_RETURN(const auto source, host_of(line, line.words[0].substr(0, arrow)));
    ASSIGN_OR_RETURN(const auto destination, host_of(line, line.words[0].substr(arrow + 2)));
    if (source == destination) {
      return bad(line, "the flow goes from a host to itself; give it another destination");
    }
    WorkloadFlow flow{
        .source = source, .destination = destination, .id = workload_.flows.size() + 1};
    bool starts = false;
    for (size_t i = 1; i < line.words.size(); i += 2) {
      if (i + 1 == line.words.size()) {
        return bad(line, fmt::format("no value follows '{}'; add it", shown(line.words[i])));
      }
      if (line.words[i] == "start") starts = true;
      RETURN_IF_ERROR(take_field(line, line.words[i], line.words[i + 1], flow));
    }
    if (flow.bytes == 0) return bad(line, "the flow has no size; add 'size BYTES'");
    if (!starts && flow.trigger == kNoTrigger) {
      return bad(line, "nothing starts the flow; add 'start MICROSECONDS' or 'trigger N'");
    }
    const auto [other, is_new] = flow_line_.try_emplace(flow.id, line.number);
    if (!is_new) {
      return bad(line, fmt::format("flow {} was given in line {} already; give each flow an id of "
                                   "its own",
                                   flow.id, other->second));
    }
    lines_.push_back(line.number);
    workload_.flows.push_back(std::move(flow));
    return {};
  }

  Result<void> take_field(const TextLine& line, std::string_view name, std::string_view value,
                          WorkloadFlow& flow) const {
    if (name == "start") {
      const auto us = parse_decimal(value, kMaxStartUs);
      if (!us) {
        return bad(line, fmt::format("the start '{}' is not valid; give microseconds from 0 to {}",
                                     shown(value), kMaxStartUs));
      }
      flow.start = Duration::from_ns(std::llround(*us * 1000));
      return {};
    }
    if (name == "id" || name == "size") {
      const uint64_t max = name == "id" ? kMaxNumber : kMaxBytes;
      const auto number = parse_number(value, max);
      if (number.value_or(0) == 0) {
        return bad(line, fmt::format("the {} '{}' is not valid; give a whole number from 1 to {}",
                                     name, shown(value), max));
      }
      (name == "id" ? flow.id : flow.bytes) = *number;
      return {};
    }
    if (name != "trigger" && name != "send_done_trigger" && name != "recv_done_trigger") {
      return bad(line, fmt::format("'{}' is not known of a flow; use id, start, size, trigger, "
                                   "send_done_trigger or recv_done_trigger",
                                   shown(name)));
    }
    const auto id = parse_number(value, kMaxNumber);
    const auto found = id ? trigger_index_.find(static_cast<uint32_t>(*id)) : trigger_index_.end();
    if (found == trigger_index_.end()) {
      return bad(line, fmt::format("trigger '{}' is not defined; add a line 'trigger id N oneshot'",
                                   shown(value)));
    }
    if (name == "trigger") flow.trigger = found->second;
    if (name == "send_done_trigger") flow.on_sent.push_back(found->second);
    if (name == "recv_done_trigger") flow.on_received.push_back(found->second);
    return {};
  }

  Result<void> check_all() const {
    for (const auto& [name, found] : {std::pair(kConnections, workload_.flows.size()),
                                      std::pair(kTriggers, workload_.triggers.size())}) {
      const Header& header = headers_.at(name);
      if (header.line != 0 && header.number != found) {
        return bad_line(file_, header.line,
                        fmt::format("{} are announced here, but the file has {}; correct the "
                                    "number, or see what is missing",
                                    header.number, found));
      }
    }
    if (const auto flow = never_starting_flow(workload_)) {
      return bad_line(file_, lines_[*flow],
                      "the flow never starts, for its trigger fires too seldom or waits for the "
                      "flow itself; let another flow fire the trigger");
    }
    return {};
  }

  const std::string& file_;
  Workload workload_;
  std::map<std::string_view, Header> headers_ = {{kNodes, {}}, {kConnections, {}}, {kTriggers, {}}};
  std::unordered_map<uint32_t, uint32_t> trigger_index_;  // by id
  std::unordered_map<uint64_t, size_t> flow_line_;        // by id
  std::vector<size_t> lines_;                             // by flow
};

}  // namespace

Result<Workload> parse_cm(std::string_view text, const std::string& file) {
  return CmFile(file).parse(text);
}

Result<Workload> read_cm_file(const std::string& path) {
  ASSIGN_OR_RETURN(const auto text, read_text_file(path));
  return parse_cm(text, path);
}

}  // namespace pacecar
