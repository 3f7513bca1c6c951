#include "bench/sim/spec_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <ranges>

#include "transport/base/edit_distance.h"
#include "transport/base/invalid.h"
#include "transport/base/param_value.h"
#include "transport/base/to_number.h"

namespace pacecar {
namespace {

std::optional<uint64_t> parse_as(ParamType type, std::string_view text) {
  return parse_param(ParamInfo{.name = {}, .type = type, .doc = {}, .range = {}, .choices = {}},
                     text);
}

auto by_unit(ParamType type) {
  return [type](std::string_view text) { return parse_as(type, text); };
}

// "1.5bdp".
std::optional<Bytes> parse_bdp(std::string_view text, Bytes bdp) {
  if (bdp == 0 || !text.ends_with("bdp")) return std::nullopt;
  const auto factor = to_number<double>(text.substr(0, text.size() - 3));
  if (!factor || !(*factor >= 0) || *factor > 1e6) return std::nullopt;
  return static_cast<Bytes>(std::llround(*factor * static_cast<double>(bdp)));
}

template <typename T>
std::optional<T> as(const SpecValue& value) {
  const T* found = std::get_if<T>(&value.value);
  return found == nullptr ? std::nullopt : std::optional<T>(*found);
}

// A number that was written without quotes.
std::optional<double> number_of(const SpecValue& value) {
  const auto whole = as<int64_t>(value);
  return whole ? static_cast<double>(*whole) : as<double>(value);
}

std::optional<uint64_t> whole_of(const SpecValue& value) {
  if (const auto whole = as<int64_t>(value)) {
    return *whole < 0 ? std::nullopt : std::optional(static_cast<uint64_t>(*whole));
  }
  const auto number = as<double>(value);
  if (!number || !(*number >= 0) || *number > 9e18 || *number != std::floor(*number)) {
    return std::nullopt;
  }
  return static_cast<uint64_t>(*number);
}

// A text by its unit, or a whole number; at most as much as a Duration has nanoseconds.
template <typename Parse>
std::optional<uint64_t> in_base_units(const SpecValue& value, Parse parse) {
  const auto raw = value.string() != nullptr ? parse(*value.string()) : whole_of(value);
  return raw && *raw <= INT64_MAX ? raw : std::nullopt;
}

}  // namespace

Result<void> check_tables(const SpecTable& spec, std::span<const std::string_view> tables,
                          std::string_view list) {
  for (const auto& [key, value] : spec.entries()) {
    if (std::ranges::find(tables, key) == tables.end()) {
      return invalid("{}: there is no table [{}]{}: use {}", value.place.text(), key,
                     did_you_mean(key, tables), fmt::join(tables, ", "));
    }
    if (key != list && value.table() == nullptr) {
      return invalid("{}: {} is {}: write it as a table [{}]", value.place.text(), key,
                     kind_of(value), key);
    }
  }
  return {};
}

const SpecValue& table_or_empty(const SpecTable& spec, std::string_view name) {
  static const SpecValue kEmpty{.value = SpecTable(),
                                .place = {std::make_shared<const std::string>("defaults"), 0}};
  const SpecValue* value = spec.find(name);
  return value == nullptr ? kEmpty : *value;
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

void SpecReader::add_error(const Result<void>& inner) {
  if (!inner && !error_) error_ = inner.error();
}

// The value as `convert` makes it, which returns nothing for one that it refuses.
template <typename T, typename Convert>
T SpecReader::read(std::string_view key, T otherwise, std::string_view wanted, Convert convert) {
  const SpecValue* value = this->value(key);
  if (value == nullptr) return otherwise;
  if (std::optional<T> found = convert(*value)) return *std::move(found);
  complain(key, fmt::format("is {}: it takes {}", to_text(*value), wanted));
  return otherwise;
}

bool SpecReader::flag(std::string_view key, bool otherwise) {
  return read(key, otherwise, "true or false", as<bool>);
}

uint64_t SpecReader::read_whole(std::string_view key, uint64_t otherwise, uint64_t min,
                                uint64_t max) {
  return read(key, otherwise, fmt::format("a whole number from {} to {}", min, max),
              [&](const SpecValue& value) {
                const auto whole = whole_of(value);
                return whole && *whole >= min && *whole <= max ? whole : std::nullopt;
              });
}

double SpecReader::number(std::string_view key, double otherwise, double min, double max) {
  return read(key, otherwise, fmt::format("a number from {} to {}", min, max),
              [&](const SpecValue& value) {
                const auto number = number_of(value);
                return number && *number >= min && *number <= max ? number : std::nullopt;
              });
}

std::string SpecReader::text(std::string_view key, std::string otherwise) {
  return read(key, std::move(otherwise), "text in quotes", as<std::string>);
}

Bytes SpecReader::bytes(std::string_view key, Bytes otherwise, Bytes bdp) {
  const std::string_view wanted =
      bdp == 0 ? "a number of bytes such as 4096, 417KB or 1MiB"
               : "a number of bytes such as 417KB or 1MiB, or a multiple of the bandwidth-delay "
                 "product such as 1bdp";
  return read(key, otherwise, wanted, [&](const SpecValue& value) {
    return in_base_units(value, [&](std::string_view text) {
      const auto multiple = parse_bdp(text, bdp);
      return multiple ? multiple : parse_bytes(text);
    });
  });
}

Rate SpecReader::rate(std::string_view key, Rate otherwise) {
  // A number without a unit is refused, but for 0: whoever writes one means no bits per second.
  const auto with_unit = [](const SpecValue& value) -> std::optional<uint64_t> {
    const auto rate = in_base_units(value, by_unit(ParamType::kRate));
    const bool bare = value.string() == nullptr ||
                      value.string()->find_first_not_of("0123456789.") == std::string::npos;
    return bare && rate != uint64_t{0} ? std::nullopt : rate;
  };
  return Rate::from_bps(read(key, otherwise.bps(),
                             "a rate with its unit such as 400G or 2500M (bits per second)",
                             with_unit));
}

Duration SpecReader::duration(std::string_view key, Duration otherwise) {
  const auto ns = read(
      key, static_cast<uint64_t>(otherwise.ns()),
      "a time with its unit such as 500ns, 10us or 2ms, or a whole number of nanoseconds",
      [](const SpecValue& value) { return in_base_units(value, by_unit(ParamType::kDuration)); });
  return Duration::from_ns(static_cast<int64_t>(ns));
}

bool same_name(std::string_view a, std::string_view b) {
  const auto letters = [](std::string_view name) {
    return name | std::views::filter([](char c) { return c != '-' && c != '_'; });
  };
  return std::ranges::equal(letters(a), letters(b));
}

size_t SpecReader::choice(std::string_view key, size_t otherwise,
                          std::span<const std::string_view> names) {
  const SpecValue* value = this->value(key);
  const bool text = value != nullptr && value->string() != nullptr;
  const std::string hint = text ? did_you_mean(*value->string(), names) : "";
  return read(key, otherwise, fmt::format("one of {}{}", fmt::join(names, ", "), hint),
              [&](const SpecValue& word) -> std::optional<size_t> {
                const auto found = std::ranges::find_if(names, [&](std::string_view name) {
                  return text && same_name(name, *word.string());
                });
                if (found == names.end()) return std::nullopt;
                return static_cast<size_t>(found - names.begin());
              });
}

std::vector<uint64_t> SpecReader::read_wholes(std::string_view key, uint64_t max) {
  const auto numbers_of = [max](const SpecValue& value) -> std::optional<std::vector<uint64_t>> {
    if (value.list() == nullptr) return std::nullopt;
    std::vector<uint64_t> numbers;
    for (const SpecValue& each : *value.list()) {
      const auto whole = whole_of(each);
      if (!whole || *whole > max) return std::nullopt;
      numbers.push_back(*whole);
    }
    return numbers;
  };
  return read(key, std::vector<uint64_t>(),
              fmt::format("a list of whole numbers from 0 to {}", max), numbers_of);
}

std::vector<double> SpecReader::ascending(std::string_view key) {
  return read(key, std::vector<double>(), "a list of numbers that begins at 0 or above and ascends",
              [](const SpecValue& value) -> std::optional<std::vector<double>> {
                if (value.list() == nullptr) return std::nullopt;
                std::vector<double> numbers = {0};
                for (const SpecValue& each : *value.list()) {
                  const auto number = number_of(each);
                  if (!number || !(*number >= numbers.back())) return std::nullopt;
                  numbers.push_back(*number);
                }
                numbers.erase(numbers.begin());
                return numbers;
              });
}

const SpecValue* SpecReader::table(std::string_view key) {
  return read<const SpecValue*>(key, nullptr, "a table such as {key = value}",
                                [](const SpecValue& value) -> std::optional<const SpecValue*> {
                                  if (value.table() == nullptr) return std::nullopt;
                                  return &value;
                                });
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
