// A run of `pacecar sim`: the first line is an option in its short form or an assignment, the rest
// a TOML file. Checked: no crash. Large numbers of topology and workload are replaced by small
// ones, so that no fabric of a million hosts is made.
#include <algorithm>

#include "bench/sim/spec_file.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/fuzz/fuzz_target.h"
#include "transport/base/check.h"

namespace pacecar::spec_fuzz {
namespace {

constexpr int64_t kMost = 12;

void make_small(SpecValue& value) {
  if (auto* const number = std::get_if<int64_t>(&value.value)) *number = std::min(*number, kMost);
  if (auto* const list = std::get_if<SpecList>(&value.value)) {
    if (list->size() > static_cast<size_t>(kMost)) list->resize(kMost);
    for (SpecValue& inner : *list) make_small(inner);
  }
  if (SpecTable* const table = value.table()) {
    for (const char* key : {"length", "file", "load"}) table->erase(key);
    for (const SpecEntry& entry : table->entries()) make_small(*table->find(entry.key));
  }
}

void make_run(SpecValue& spec) {
  SpecTable& tables = *spec.table();
  for (const char* name : {"topology", "workload"}) {
    if (SpecValue* const part = tables.find(name)) make_small(*part);
  }
  static_cast<void>(make_run_spec(tables, ""));
}

}  // namespace

FUZZ_TARGET(spec) {
  const std::string_view text = fuzz::Input(data, size).text();
  const std::string_view option = text.substr(0, text.find('\n'));
  static_cast<void>(table_from_short_form(option));
  auto spec = parse_spec(text.substr(std::min(text.size(), option.size() + 1)), "fuzz.toml");
  if (!spec) return 0;
  static_cast<void>(to_text(*spec));
  static_cast<void>(set_spec(*spec->table(), option));
  SpecTable copy = *spec->table();
  merge_spec(copy, *spec->table());
  make_run(*spec);
  return 0;
}

}  // namespace pacecar::spec_fuzz
