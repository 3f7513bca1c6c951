#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "transport/base/take_until.h"
#include "transport/base/to_number.h"
#include "transport/io/decorators/decorator.h"

namespace pacecar {
namespace {

constexpr double kMaxHoldNs = 10e9;  // ten seconds: longer than any protocol waits

// A number from 0 to `most`.
template <typename T>
bool parse_number(std::string_view text, T most, T& out) {
  const auto value = to_number<T>(text);
  if (!value || std::clamp(*value, T{}, most) != *value) return false;  // NaN fails as well
  out = *value;
  return true;
}

bool parse_duration(std::string_view text, Duration& out) {
  static constexpr std::pair<std::string_view, double> kUnitsInNs[] = {
      {"ns", 1}, {"us", 1e3}, {"ms", 1e6}, {"s", 1e9}};
  for (const auto& [unit, ns] : kUnitsInNs) {
    if (!text.ends_with(unit)) continue;
    double number = 0;
    text.remove_suffix(unit.size());
    if (!parse_number(text, kMaxHoldNs / ns, number)) return false;
    out = Duration::from_ns(static_cast<int64_t>(number * ns));
    return true;
  }
  return false;
}

bool parse_sides(std::string_view text, FaultConfig& config) {
  config.on_send = text == "send" || text == "both";
  config.on_receive = text == "receive" || text == "both";
  return config.on_send || config.on_receive;
}

bool parse_part(std::string_view key, std::string_view value, FaultConfig& config) {
  if (key == "loss") return parse_number(value, 1.0, config.loss);
  if (key == "duplicate") return parse_number(value, 1.0, config.duplicate);
  if (key == "corrupt") return parse_number(value, 1.0, config.corrupt);
  if (key == "reorder") return parse_number(value, 1.0, config.reorder);
  if (key == "reorder_by") return parse_duration(value, config.reorder_by);
  if (key == "delay") return parse_duration(value, config.delay);
  if (key == "seed") {
    return parse_number(value, std::numeric_limits<uint64_t>::max(), config.seed);
  }
  if (key == "on") return parse_sides(value, config);
  return false;
}

}  // namespace

Result<FaultConfig> parse_fault(std::string_view text) {
  FaultConfig config;
  while (!text.empty()) {
    const std::string_view part = take_until(text, ',');
    std::string_view value = part;
    const std::string_view key = take_until(value, '=');
    if (!parse_part(key, value, config)) {
      return fail(
          ErrorCode::kInvalidArgument,
          fmt::format("'{}' is not a fault: write loss=, duplicate=, corrupt= or reorder= with "
                      "a probability of 0 to 1, delay= or reorder_by= with a time such as "
                      "10us (at most 10s), seed= with a number, on= with send, receive or "
                      "both",
                      part));
    }
  }
  return config;
}

}  // namespace pacecar
