// An experiment's TOML file as plain values with their positions. Copying and merging keep the
// positions (toml++'s own nodes lose them), so that every error can name file and line. Pure.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "transport/base/result.h"
#include "transport/base/units.h"

namespace pacecar {

// Where a value was written. Without a file: on the command line. Line 0: unknown.
struct SpecPlace {
  std::shared_ptr<const std::string> file;
  uint32_t line = 0;

  // "burst.toml, line 7"; "command line" without a file.
  std::string text() const;
};

struct SpecEntry;
struct SpecValue;

// Keys and values in the order of the file; no key twice.
class SpecTable {
 public:
  const std::vector<SpecEntry>& entries() const { return entries_; }
  bool empty() const { return entries_.empty(); }
  // Null when there is none.
  const SpecValue* find(std::string_view key) const;
  SpecValue* find(std::string_view key);
  // Adds the key, or replaces its value.
  SpecValue& set(std::string key, SpecValue value);
  void erase(std::string_view key);

 private:
  std::vector<SpecEntry> entries_;
};

using SpecList = std::vector<SpecValue>;

struct SpecValue {
  std::variant<bool, int64_t, double, std::string, SpecList, SpecTable> value;
  SpecPlace place;

  const SpecTable* table() const { return std::get_if<SpecTable>(&value); }
  SpecTable* table() { return std::get_if<SpecTable>(&value); }
  const SpecList* list() const { return std::get_if<SpecList>(&value); }
  const std::string* string() const { return std::get_if<std::string>(&value); }
};

struct SpecEntry {
  std::string key;
  SpecValue value;
};

// "a number", "a table", for messages.
std::string_view kind_of(const SpecValue& value);
// As TOML writes it, on one line: for names of arms and for messages.
std::string to_text(const SpecValue& value);

// The tables of a list such as [[arm]]; none when the key is missing. Errors: kInvalidArgument.
Result<std::vector<const SpecValue*>> tables_of(const SpecTable& table, std::string_view key,
                                                std::string_view title);

// Reads a TOML file; the value is a table. Errors: kSystem, kInvalidArgument; file, line, cause.
Result<SpecValue> read_spec(const std::string& path);
Result<SpecValue> parse_spec(std::string_view text, const std::string& name);

// Puts `top` on `base`: tables are merged key by key, everything else is replaced. A table whose
// `kind` or `file` changes is replaced as a whole, because each kind has its own keys.
void merge_spec(SpecTable& base, const SpecTable& top);

// Sets one value by its dotted name, as on a command line: "workload.senders=32". The value is read
// as TOML would (true, 3, 0.5, [1, 2], {low = "1KB"}), else as text.
// Errors: kInvalidArgument.
Result<void> set_spec(SpecTable& table, std::string_view assignment);
Result<void> set_spec(SpecTable& table, std::string_view dotted_key, SpecValue value);

// " (did you mean 'queue'?)", or nothing when no word is near.
std::string did_you_mean(std::string_view word, std::span<const std::string_view> known);
inline std::string did_you_mean(std::string_view word, const std::vector<std::string>& known) {
  return did_you_mean(word, std::vector<std::string_view>(known.begin(), known.end()));
}

// The `name` of each: words that a key takes.
template <typename Named>
std::vector<std::string_view> names_of(std::span<const Named> all) {
  std::vector<std::string_view> names;
  for (const Named& each : all) names.push_back(each.name);
  return names;
}

// "417KB" (1000 bytes), "417KiB" or "417K" (1024), "417000".
std::optional<Bytes> parse_bytes(std::string_view text);

// Reads typed values from a SpecTable, each key with its default. finish() returns the first
// complaint, with file and line, so that code which reads a table checks for errors once.
class SpecReader {
 public:
  // `name` is used in messages: "[fabric]", "[topology] leaf-spine".
  SpecReader(const SpecTable& table, std::string name, SpecPlace place)
      : table_(table), name_(std::move(name)), place_(std::move(place)) {}

  bool has(std::string_view key) { return value(key) != nullptr; }
  // Each returns `otherwise` when the key is missing or its value is refused.
  bool flag(std::string_view key, bool otherwise);
  uint64_t whole(std::string_view key, uint64_t otherwise, uint64_t min = 0,
                 uint64_t max = std::numeric_limits<uint32_t>::max());
  double number(std::string_view key, double otherwise, double min, double max);
  std::string text(std::string_view key, std::string otherwise);
  // With a `bdp`, "1.5bdp" is that many bandwidth-delay products.
  Bytes bytes(std::string_view key, Bytes otherwise, Bytes bdp = 0);
  Rate rate(std::string_view key, Rate otherwise);
  Duration duration(std::string_view key, Duration otherwise);
  // The word's index in `names`.
  size_t choice(std::string_view key, size_t otherwise, std::span<const std::string_view> names);
  // A list of whole numbers from 0 to `max`.
  template <typename Number = uint32_t>
  std::vector<Number> wholes(std::string_view key, Number max) {
    const std::vector<uint64_t> numbers = read_wholes(key, max);
    return {numbers.begin(), numbers.end()};
  }
  // Null when missing.
  const SpecValue* value(std::string_view key);
  // Also null, and a complaint, when the value is no table.
  const SpecValue* table(std::string_view key);

  // Keeps a complaint about a key, unless there is one; `what` follows "[fabric] queue ".
  void complain(std::string_view key, std::string_view what);
  void keep(const Result<void>& inner);
  bool failed() const { return error_.has_value(); }
  // The first complaint; without one, the first key that nobody has read.
  Result<void> finish();

 private:
  std::vector<uint64_t> read_wholes(std::string_view key, uint64_t max);
  void wrong(std::string_view key, const SpecValue& value, std::string_view wanted);
  std::optional<uint64_t> in_base_units(std::string_view key, std::string_view wanted,
                                        std::optional<uint64_t> (*parse)(std::string_view));

  const SpecTable& table_;
  std::string name_;
  SpecPlace place_;
  std::vector<std::string_view> known_;
  std::optional<Error> error_;
};

}  // namespace pacecar
