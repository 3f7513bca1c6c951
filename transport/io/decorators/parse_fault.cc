#include <fmt/format.h>

#include <array>
#include <charconv>
#include <optional>
#include <utility>

#include "transport/io/decorators/fault.h"

namespace pacecar {
namespace {

constexpr double kMaxHoldNs = 10e9;  // ten seconds: longer than any protocol waits

// The number that begins `text`, which becomes what follows it.
template <typename T>
std::optional<T> take_number(std::string_view& text) {
  T value{};
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc()) return std::nullopt;
  text.remove_prefix(static_cast<size_t>(stop - text.data()));
  return value;
}

bool parse_probability(std::string_view text, double& out) {
  const auto value = take_number<double>(text);
  if (!value || !text.empty() || !(*value >= 0 && *value <= 1)) return false;  // NaN fails as well
  out = *value;
  return true;
}

bool parse_duration(std::string_view text, Duration& out) {
  static constexpr std::array<std::pair<std::string_view, double>, 4> kUnits = {
      {{"ns", 1}, {"us", 1e3}, {"ms", 1e6}, {"s", 1e9}}};
  const auto value = take_number<double>(text);
  if (!value) return false;
  for (const auto& [unit, ns] : kUnits) {
    if (text != unit || !(*value >= 0 && *value * ns <= kMaxHoldNs)) continue;
    out = Duration::from_ns(static_cast<int64_t>(*value * ns));
    return true;
  }
  return false;
}

bool parse_seed(std::string_view text, uint64_t& out) {
  const auto value = take_number<uint64_t>(text);
  if (!value || !text.empty()) return false;
  out = *value;
  return true;
}

bool parse_sides(std::string_view text, FaultConfig& config) {
  config.on_send = text == "send" || text == "both";
  config.on_receive = text == "receive" || text == "both";
  return config.on_send || config.on_receive;
}

bool parse_part(std::string_view key, std::string_view value, FaultConfig& config) {
  if (key == "loss") return parse_probability(value, config.loss);
  if (key == "duplicate") return parse_probability(value, config.duplicate);
  if (key == "corrupt") return parse_probability(value, config.corrupt);
  if (key == "reorder") return parse_probability(value, config.reorder);
  if (key == "reorder_by") return parse_duration(value, config.reorder_by);
  if (key == "delay") return parse_duration(value, config.delay);
  if (key == "seed") return parse_seed(value, config.seed);
  if (key == "on") return parse_sides(value, config);
  return false;
}

}  // namespace

Result<FaultConfig> parse_fault(std::string_view text) {
  FaultConfig config;
  while (!text.empty()) {
    const size_t comma = text.find(',');
    const std::string_view part = text.substr(0, comma);
    text.remove_prefix(comma == std::string_view::npos ? text.size() : comma + 1);
    const size_t equals = part.find('=');
    if (equals == std::string_view::npos ||
        !parse_part(part.substr(0, equals), part.substr(equals + 1), config)) {
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
