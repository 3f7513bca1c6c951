#include "bench/sim/spec_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "transport/base/edit_distance.h"
#include "transport/base/invalid.h"
#include "transport/base/param_value.h"
#include "transport/base/to_number.h"

namespace pacecar {
namespace {

constexpr std::string_view kBytesWanted = "a number of bytes such as 4096, 417KB or 1MiB";
constexpr std::string_view kBytesOrBdpWanted =
    "a number of bytes such as 417KB or 1MiB, or a multiple of the bandwidth-delay product such as "
    "1bdp";
constexpr std::string_view kRateWanted =
    "a rate with its unit such as 400G or 2500M (bits per second)";
constexpr std::string_view kDurationWanted =
    "a time with its unit such as 500ns, 10us or 2ms, or a whole number of nanoseconds";

std::optional<uint64_t> parse_as(ParamType type, std::string_view text) {
  return parse_param(ParamInfo{.name = {}, .type = type, .doc = {}, .range = {}, .choices = {}},
                     text);
}

// A bare number is refused: whoever writes one means no bits per second.
std::optional<uint64_t> parse_rate(std::string_view text) {
  const auto rate = parse_as(ParamType::kRate, text);
  const bool bare = text.find_first_not_of("0123456789.") == std::string_view::npos;
  return bare && rate != uint64_t{0} ? std::nullopt : rate;
}

std::optional<uint64_t> parse_duration(std::string_view text) {
  return parse_as(ParamType::kDuration, text);
}

// "1.5bdp".
std::optional<Bytes> parse_bdp(std::string_view text, Bytes bdp) {
  if (bdp == 0 || !text.ends_with("bdp")) return std::nullopt;
  const auto factor = to_number<double>(text.substr(0, text.size() - 3));
  if (!factor || !(*factor >= 0) || *factor > 1e6) return std::nullopt;
  return static_cast<Bytes>(std::llround(*factor * static_cast<double>(bdp)));
}

// A number that was written without quotes; nothing when it is not whole.
std::optional<uint64_t> whole_of(const SpecValue& value) {
  if (const auto* whole = std::get_if<int64_t>(&value.value)) {
    if (*whole < 0) return std::nullopt;
    return static_cast<uint64_t>(*whole);
  }
  const auto* number = std::get_if<double>(&value.value);
  if (number == nullptr || !(*number >= 0) || *number > 9e18 || *number != std::floor(*number)) {
    return std::nullopt;
  }
  return static_cast<uint64_t>(*number);
}

}  // namespace

std::string did_you_mean(std::string_view word, std::span<const std::string_view> known) {
  std::string_view nearest;
  // A name that differs more is no typing error.
  size_t nearest_distance = std::min<size_t>(3, word.size());
  for (const std::string_view each : known) {
    const size_t distance = edit_distance(word, each);
    if (distance < nearest_distance) {
      nearest = each;
      nearest_distance = distance;
    }
  }
  return nearest.empty() ? std::string() : fmt::format(" (did you mean '{}'?)", nearest);
}

std::optional<Bytes> parse_bytes(std::string_view text) {
  if (text.ends_with("iB")) return parse_as(ParamType::kBytes, text.substr(0, text.size() - 2));
  // KB, MB and GB count in thousands, as the suffixes of rates do.
  if (text.ends_with("B")) return parse_as(ParamType::kRate, text.substr(0, text.size() - 1));
  return parse_as(ParamType::kBytes, text);
}

const SpecValue* SpecReader::value(std::string_view key) {
  if (std::ranges::find(known_, key) == known_.end()) known_.push_back(key);
  return table_.find(key);
}

void SpecReader::complain(std::string_view key, std::string_view what) {
  if (error_) return;
  const SpecValue* value = table_.find(key);
  error_ = Error{ErrorCode::kInvalidArgument,
                 fmt::format("{}: {} {} {}", (value != nullptr ? value->place : place_).text(),
                             name_, key, what)};
}

void SpecReader::wrong(std::string_view key, const SpecValue& value, std::string_view wanted) {
  complain(key, fmt::format("is {}: it takes {}", to_text(value), wanted));
}

void SpecReader::keep(const Result<void>& inner) {
  if (!inner && !error_) error_ = inner.error();
}

bool SpecReader::flag(std::string_view key, bool otherwise) {
  const SpecValue* value = this->value(key);
  if (value == nullptr) return otherwise;
  if (const auto* flag = std::get_if<bool>(&value->value)) return *flag;
  wrong(key, *value, "true or false");
  return otherwise;
}

uint64_t SpecReader::whole(std::string_view key, uint64_t otherwise, uint64_t min, uint64_t max) {
  const SpecValue* value = this->value(key);
  if (value == nullptr) return otherwise;
  const auto whole = whole_of(*value);
  if (whole && *whole >= min && *whole <= max) return *whole;
  wrong(key, *value, fmt::format("a whole number from {} to {}", min, max));
  return otherwise;
}

double SpecReader::number(std::string_view key, double otherwise, double min, double max) {
  const SpecValue* value = this->value(key);
  if (value == nullptr) return otherwise;
  double number = std::nan("");
  if (const auto* real = std::get_if<double>(&value->value)) number = *real;
  if (const auto* whole = std::get_if<int64_t>(&value->value)) number = static_cast<double>(*whole);
  if (number >= min && number <= max) return number;
  wrong(key, *value, fmt::format("a number from {} to {}", min, max));
  return otherwise;
}

std::string SpecReader::text(std::string_view key, std::string otherwise) {
  const SpecValue* value = this->value(key);
  if (value == nullptr) return otherwise;
  if (const std::string* text = value->string()) return *text;
  wrong(key, *value, "text in quotes");
  return otherwise;
}

std::optional<uint64_t> SpecReader::in_base_units(
    std::string_view key, std::string_view wanted,
    std::optional<uint64_t> (*parse)(std::string_view)) {
  const SpecValue* value = this->value(key);
  if (value == nullptr) return std::nullopt;
  const std::string* text = value->string();
  const auto raw = text != nullptr ? parse(*text) : whole_of(*value);
  if (raw && *raw <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return raw;
  wrong(key, *value, wanted);
  return std::nullopt;
}

Bytes SpecReader::bytes(std::string_view key, Bytes otherwise, Bytes bdp) {
  if (const SpecValue* value = table_.find(key); value != nullptr && value->string() != nullptr) {
    const auto multiple = parse_bdp(*value->string(), bdp);
    if (multiple && has(key)) return *multiple;
  }
  return in_base_units(key, bdp == 0 ? kBytesWanted : kBytesOrBdpWanted, parse_bytes)
      .value_or(otherwise);
}

Rate SpecReader::rate(std::string_view key, Rate otherwise) {
  const auto raw = in_base_units(key, kRateWanted, parse_rate);
  const SpecValue* const value = table_.find(key);
  if (!raw) return otherwise;
  if (*raw != 0 && value->string() == nullptr) wrong(key, *value, kRateWanted);
  return Rate::from_bps(*raw);
}

Duration SpecReader::duration(std::string_view key, Duration otherwise) {
  const auto raw = in_base_units(key, kDurationWanted, parse_duration);
  return raw ? Duration::from_ns(static_cast<int64_t>(*raw)) : otherwise;
}

size_t SpecReader::choice(std::string_view key, size_t otherwise,
                          std::span<const std::string_view> names) {
  const SpecValue* value = this->value(key);
  if (value == nullptr) return otherwise;
  const std::string* text = value->string();
  if (text != nullptr) {
    const auto found = std::ranges::find(names, *text);
    if (found != names.end()) return static_cast<size_t>(found - names.begin());
  }
  const std::string hint = text == nullptr ? "" : did_you_mean(*text, names);
  complain(key, fmt::format("is {}{}: it takes one of {}", to_text(*value), hint,
                            fmt::join(names, ", ")));
  return otherwise;
}

std::vector<uint64_t> SpecReader::read_wholes(std::string_view key, uint64_t max) {
  std::vector<uint64_t> numbers;
  const SpecValue* value = this->value(key);
  if (value == nullptr) return numbers;
  const SpecList* list = value->list();
  if (list == nullptr) {
    wrong(key, *value, "a list of whole numbers such as [0, 1]");
    return numbers;
  }
  for (const SpecValue& each : *list) {
    const auto whole = whole_of(each);
    if (!whole || *whole > max) {
      wrong(key, *value, fmt::format("a list of whole numbers from 0 to {}", max));
      return {};
    }
    numbers.push_back(*whole);
  }
  return numbers;
}

const SpecValue* SpecReader::table(std::string_view key) {
  const SpecValue* value = this->value(key);
  if (value == nullptr || value->table() != nullptr) return value;
  wrong(key, *value, "a table such as {key = value}");
  return nullptr;
}

Result<void> SpecReader::finish() {
  if (error_) return tl::unexpected(*error_);
  for (const auto& [key, value] : table_.entries()) {
    if (std::ranges::find(known_, key) != known_.end()) continue;
    return invalid("{}: {} has no key '{}'{}: it takes {}", value.place.text(), name_, key,
                   did_you_mean(key, known_), fmt::join(known_, ", "));
  }
  return {};
}

}  // namespace pacecar
