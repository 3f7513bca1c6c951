#include "bench/sim/spec_value.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <iterator>

// The library asserts what a file can make untrue ("[.a]", in its version 3.0): that is an error of
// the file, and no reason to abort, or without assertions to go on.
struct TomlAssertion {};
[[noreturn]] static void fail_toml_assertion() { throw TomlAssertion(); }
#define TOML_ASSERT(expression) ((expression) ? void() : fail_toml_assertion())
#define TOML_EXCEPTIONS 1
#define TOML_ENABLE_FORMATTERS 0
#pragma push_macro("NDEBUG")
#undef NDEBUG
#include <toml++/toml.h>
#pragma pop_macro("NDEBUG")

namespace pacecar {
namespace {

using FileName = std::shared_ptr<const std::string>;

SpecPlace place_of(const toml::node& node, const FileName& file) {
  return {file, static_cast<uint32_t>(node.source().begin.line)};
}

Result<SpecValue> convert(const toml::node& node, const FileName& file);

Result<SpecTable> convert_table(const toml::table& table, const FileName& file) {
  // The parser sorts keys by name; people wrote them in an order.
  std::vector<std::pair<std::string_view, const toml::node*>> written;
  for (const auto& [key, node] : table) written.emplace_back(key.str(), &node);
  std::ranges::stable_sort(written, {}, [](const auto& entry) {
    const toml::source_position& begin = entry.second->source().begin;
    return std::pair(begin.line, begin.column);
  });
  SpecTable converted;
  for (const auto& [key, node] : written) {
    auto value = convert(*node, file);
    if (!value) return tl::unexpected(value.error());
    converted.set(std::string(key), std::move(*value));
  }
  return converted;
}

Result<SpecValue> convert(const toml::node& node, const FileName& file) {
  SpecValue converted{.value = false, .place = place_of(node, file)};
  if (const toml::table* table = node.as_table()) {
    auto inner = convert_table(*table, file);
    if (!inner) return tl::unexpected(inner.error());
    converted.value = std::move(*inner);
  } else if (const toml::array* array = node.as_array()) {
    SpecList list;
    for (const toml::node& element : *array) {
      auto value = convert(element, file);
      if (!value) return value;
      list.push_back(std::move(*value));
    }
    converted.value = std::move(list);
  } else if (const auto* text = node.as_string()) {
    converted.value = text->get();
  } else if (const auto* whole = node.as_integer()) {
    converted.value = whole->get();
  } else if (const auto* number = node.as_floating_point()) {
    converted.value = number->get();
  } else if (const auto* flag = node.as_boolean()) {
    converted.value = flag->get();
  } else {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{}: dates and times of day mean nothing here: put the value in quotes",
                            converted.place.text()));
  }
  return converted;
}

Result<toml::table> parse_toml(std::string_view text, const FileName& file) {
  try {
    return toml::parse(text);
  } catch (const toml::parse_error& error) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{}, line {}: not valid TOML: {}", *file, error.source().begin.line,
                            error.description()));
  } catch (const TomlAssertion&) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{}: not valid TOML: a table or a key has no name", *file));
  }
}

Result<SpecValue> parse(std::string_view text, const FileName& file) {
  const auto parsed = parse_toml(text, file);
  if (!parsed) return tl::unexpected(parsed.error());
  auto table = convert_table(*parsed, file);
  if (!table) return tl::unexpected(table.error());
  return SpecValue{.value = std::move(*table), .place = {file, 1}};
}

// What gives a table its meaning: with another one of these it is another table.
bool is_another(const SpecTable& base, const SpecTable& top) {
  for (const std::string_view key : {"kind", "file"}) {
    const SpecValue* now = top.find(key);
    if (now == nullptr) continue;
    const SpecValue* before = base.find(key);
    if (before == nullptr || to_text(*before) != to_text(*now)) return true;
  }
  return false;
}

}  // namespace

std::string SpecPlace::text() const {
  if (file == nullptr) return "command line";
  return line == 0 ? *file : fmt::format("{}, line {}", *file, line);
}

const SpecValue* SpecTable::find(std::string_view key) const {
  const auto found = std::ranges::find(entries_, key, &SpecEntry::key);
  return found == entries_.end() ? nullptr : &found->value;
}

SpecValue* SpecTable::find(std::string_view key) {
  return const_cast<SpecValue*>(static_cast<const SpecTable*>(this)->find(key));
}

SpecValue& SpecTable::set(std::string key, SpecValue value) {
  if (SpecValue* found = find(key)) return *found = std::move(value);
  entries_.push_back({std::move(key), std::move(value)});
  return entries_.back().value;
}

void SpecTable::erase(std::string_view key) {
  std::erase_if(entries_, [key](const SpecEntry& entry) { return entry.key == key; });
}

std::string_view kind_of(const SpecValue& value) {
  constexpr std::string_view kNames[] = {"true or false", "a whole number", "a number",
                                         "text",          "a list",         "a table"};
  return kNames[value.value.index()];
}

std::string to_text(const SpecValue& value) {
  struct Writer {
    std::string operator()(bool flag) const { return flag ? "true" : "false"; }
    std::string operator()(int64_t number) const { return std::to_string(number); }
    std::string operator()(double number) const { return fmt::format("{}", number); }
    std::string operator()(const std::string& text) const { return fmt::format("\"{}\"", text); }
    std::string operator()(const SpecList& list) const {
      std::string text;
      for (const SpecValue& each : list) text += (text.empty() ? "" : ", ") + to_text(each);
      return "[" + text + "]";
    }
    std::string operator()(const SpecTable& table) const {
      std::string text;
      for (const auto& [key, each] : table.entries()) {
        text += fmt::format("{}{} = {}", text.empty() ? "" : ", ", key, to_text(each));
      }
      return "{" + text + "}";
    }
  };
  return std::visit(Writer{}, value.value);
}

Result<SpecValue> read_spec(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    return fail(ErrorCode::kNotFound,
                fmt::format("cannot read '{}': check its name and its permissions", path));
  }
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  return parse(text, std::make_shared<const std::string>(path));
}

Result<SpecValue> parse_spec(std::string_view text, const std::string& name) {
  return parse(text, std::make_shared<const std::string>(name));
}

void merge_spec(SpecTable& base, const SpecTable& top) {
  for (const auto& [key, value] : top.entries()) {
    SpecValue* old = base.find(key);
    const SpecTable* inner = value.table();
    if (old == nullptr || inner == nullptr || old->table() == nullptr ||
        is_another(*old->table(), *inner)) {
      base.set(key, value);
    } else {
      merge_spec(*old->table(), *inner);
    }
  }
}

Result<void> set_spec(SpecTable& table, std::string_view assignment) {
  const size_t equals = assignment.find('=');
  if (equals == std::string_view::npos || equals == 0) {
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format("'{}' sets nothing: write KEY=VALUE, such as workload.senders=32", assignment));
  }
  const std::string text(assignment.substr(equals + 1));
  SpecValue value{.value = text, .place = {}};
  if (const auto parsed = parse_spec("value = " + text, "command line")) {
    const SpecTable& parsed_table = *parsed->table();
    // One value only: text with a line break could hold more.
    if (parsed_table.entries().size() == 1) value.value = parsed_table.find("value")->value;
  }
  return set_spec(table, assignment.substr(0, equals), std::move(value));
}

Result<void> set_spec(SpecTable& table, std::string_view dotted_key, SpecValue value) {
  const size_t dot = dotted_key.find('.');
  const std::string key(dotted_key.substr(0, dot));
  if (key.empty()) {
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format("'{}' names no value: write something such as workload.senders", dotted_key));
  }
  if (dot == std::string_view::npos) {
    SpecTable top;
    top.set(key, std::move(value));
    if (is_another(table, top)) table = top;
    table.set(key, *top.find(key));
    return {};
  }
  SpecValue* inner = table.find(key);
  if (inner == nullptr) {
    inner = &table.set(key, SpecValue{.value = SpecTable(), .place = value.place});
  }
  if (inner->table() == nullptr) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{}: '{}' is {}, not a table: '{}' cannot be set in it",
                            inner->place.text(), key, kind_of(*inner), dotted_key.substr(dot + 1)));
  }
  return set_spec(*inner->table(), dotted_key.substr(dot + 1), std::move(value));
}

}  // namespace pacecar
