// An experiment's TOML file as plain values with their positions. Copying and merging keep the
// positions (toml++'s own nodes lose them), so that every error can name file and line. Pure.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "transport/base/result.h"

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
// Several files, of which later ones override earlier ones.
Result<SpecTable> read_specs(const std::vector<std::string>& paths);

// Puts `top` on `base`: tables are merged key by key, everything else is replaced. A table whose
// `kind` or `file` changes is replaced as a whole, because each kind has its own keys.
void merge_spec(SpecTable& base, const SpecTable& top);

// Sets one value by its dotted name, as on a command line: "workload.senders=32". The value is read
// as TOML would (true, 3, 0.5, [1, 2], {low = "1KB"}), else as text. A new `kind` keeps the other
// keys: reading the table refuses keys that the kind lacks, in whatever order they were set.
// Errors: kInvalidArgument.
Result<void> set_spec(SpecTable& table, std::string_view assignment);
Result<void> set_specs(SpecTable& table, const std::vector<std::string>& assignments);
Result<void> set_spec(SpecTable& table, std::string_view dotted_key, SpecValue value);

}  // namespace pacecar
