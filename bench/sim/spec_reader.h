// Reads typed values from a SpecTable, each key with its default. finish() returns the first
// complaint, with file and line, so that code which reads a table checks for errors once. Pure.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "bench/sim/spec_value.h"
#include "transport/base/result.h"
#include "transport/base/units.h"

namespace pacecar {

// The `name` of each: words that a key takes.
template <typename Named>
std::vector<std::string_view> names_of(std::span<const Named> all) {
  std::vector<std::string_view> names;
  for (const Named& each : all) names.push_back(each.name);
  return names;
}

// Refuses top-level keys other than `tables`, and values that are not tables, except at `list`.
Result<void> check_tables(const SpecTable& spec, std::span<const std::string_view> tables,
                          std::string_view list = "");
// The table of this name; an empty one when it is missing.
const SpecValue& table_or_empty(const SpecTable& spec, std::string_view name);

// "417KB" (1000 bytes), "417KiB" or "417K" (1024), "417000".
std::optional<Bytes> parse_bytes(std::string_view text);

// Whether both are the same name but for '-' and '_': all_to_all, all-to-all and alltoall.
bool same_name(std::string_view a, std::string_view b);

class SpecReader {
 public:
  // `name` is used in messages: "[fabric]", "[topology] leaf-spine".
  SpecReader(const SpecTable& table, std::string name, SpecPlace place)
      : table_(table), name_(std::move(name)), place_(std::move(place)) {}
  // `value` is a table.
  SpecReader(const SpecValue& value, std::string name)
      : SpecReader(*value.table(), std::move(name), value.place) {}

  bool has(std::string_view key) { return value(key) != nullptr; }
  // Each returns `otherwise` when the key is missing or its value is refused.
  bool flag(std::string_view key, bool otherwise);
  template <typename Number = uint64_t>
  Number whole(std::string_view key, std::type_identity_t<Number> otherwise, uint64_t min = 0,
               uint64_t max = std::numeric_limits<uint32_t>::max()) {
    return static_cast<Number>(read_whole(key, otherwise, min, max));
  }
  double number(std::string_view key, double otherwise, double min, double max);
  std::string text(std::string_view key, std::string otherwise);
  // With a `bdp`, "1.5bdp" is that many bandwidth-delay products.
  Bytes bytes(std::string_view key, Bytes otherwise, Bytes bdp = 0);
  Rate rate(std::string_view key, Rate otherwise);
  Duration duration(std::string_view key, Duration otherwise);
  // The word's index in `names`, or the enumerator with this number.
  size_t choice(std::string_view key, size_t otherwise, std::span<const std::string_view> names);
  template <typename Enum>
  requires std::is_enum_v<Enum> Enum choice(std::string_view key, Enum otherwise,
                                            std::span<const std::string_view> names) {
    return static_cast<Enum>(choice(key, static_cast<size_t>(otherwise), names));
  }
  // A list of whole numbers from 0 to `max`.
  template <typename Number = uint32_t>
  std::vector<Number> wholes(std::string_view key, Number max) {
    const std::vector<uint64_t> numbers = read_wholes(key, max);
    return {numbers.begin(), numbers.end()};
  }
  // A list of numbers from 0 on that do not descend; empty when the key is missing or refused.
  std::vector<double> ascending(std::string_view key);
  // Null when missing.
  const SpecValue* value(std::string_view key);
  // Also null, with a complaint, when the value is not a table.
  const SpecValue* table(std::string_view key);

  // Keeps a complaint about a key, unless there is one; `what` follows "[fabric] queue ".
  void complain(std::string_view key, std::string_view what);
  void add_error(const Result<void>& inner);
  bool failed() const { return error_.has_value(); }
  // The first complaint; without one, the first key that nobody has read.
  Result<void> finish();

 private:
  template <typename T, typename Convert>
  T read(std::string_view key, T otherwise, std::string_view wanted, Convert convert);
  uint64_t read_whole(std::string_view key, uint64_t otherwise, uint64_t min, uint64_t max);
  std::vector<uint64_t> read_wholes(std::string_view key, uint64_t max);

  const SpecTable& table_;
  std::string name_;
  SpecPlace place_;
  std::vector<std::string_view> known_;
  std::optional<Error> error_;
};

}  // namespace pacecar
