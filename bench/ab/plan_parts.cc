#include "bench/ab/plan_parts.h"

#include <fmt/format.h>

#include <algorithm>

#include "bench/sim/spec_file.h"
#include "transport/base/edit_distance.h"
#include "transport/base/invalid.h"
#include "transport/base/return_if_error.h"

namespace pacecar::ab {
namespace {

constexpr size_t kMaxRuns = 1'000'000;

// Which of `names` the value has: one name, or a list.
Result<std::vector<bool>> select_names(const SpecValue& value, const std::string& what,
                                       const std::vector<std::string>& names) {
  std::vector<bool> selected(names.size(), false);
  const SpecList one{value};
  for (const SpecValue& each : value.list() != nullptr ? *value.list() : one) {
    const std::string text = plain_text(each);
    const auto found = std::find(names.begin(), names.end(), text);
    if (found == names.end()) {
      return invalid("{}: {} has no '{}'{}: it has {}", value.place.text(), what, text,
                     did_you_mean(text, names), fmt::join(names, ", "));
    }
    selected[static_cast<size_t>(found - names.begin())] = true;
  }
  return selected;
}

// All combinations. Arms vary fastest, then the last factor, so compared cells run in succession.
std::vector<Cell> all_cells(const Experiment& experiment) {
  std::vector<Cell> cells;
  Cell cell{0, std::vector<size_t>(experiment.factors.size(), 0)};
  for (;;) {
    for (cell.arm = 0; cell.arm < experiment.arms.size(); ++cell.arm) cells.push_back(cell);
    size_t factor = experiment.factors.size();
    while (factor > 0 &&
           ++cell.values[factor - 1] == experiment.factors[factor - 1].values.size()) {
      cell.values[--factor] = 0;
    }
    if (factor == 0) return cells;
  }
}

// `what` are they: "arms".
Result<void> check_names(const std::vector<std::string>& names, const std::string& what,
                         const SpecPlace& place) {
  for (auto name = names.begin(); name != names.end(); ++name) {
    if (std::find(names.begin(), name, *name) == name) continue;
    return invalid("{}: there are two {} named '{}': rename one", place.text(), what, *name);
  }
  return {};
}

// All combinations of the experiment's arms and factor values, except those that a [[skip]] names
// and, where there is an [[only]], those that none names.
Result<void> choose_cells(const SpecTable& table, Experiment& experiment) {
  const std::vector<Cell> cells = all_cells(experiment);
  ASSIGN_OR_RETURN(const auto skips, tables_of(table, "skip", "skip"));
  ASSIGN_OR_RETURN(const auto onlys, tables_of(table, "only", "only"));
  std::vector<bool> kept(cells.size(), onlys.empty());
  for (const SpecValue* only : onlys) {
    ASSIGN_OR_RETURN(const auto selected, select_cells(*only, "[[only]]", experiment, cells));
    for (size_t i = 0; i < cells.size(); ++i) kept[i] = kept[i] || selected[i];
  }
  for (const SpecValue* skip : skips) {
    ASSIGN_OR_RETURN(const auto selected, select_cells(*skip, "[[skip]]", experiment, cells));
    for (size_t i = 0; i < cells.size(); ++i) kept[i] = kept[i] && !selected[i];
  }
  for (size_t i = 0; i < cells.size(); ++i) {
    if (kept[i]) experiment.cells.push_back(cells[i]);
  }
  return {};
}

// An arm's settings as the report shows them.
std::string settings_text(const SpecTable& keys) {
  std::vector<std::string> texts;
  for (const auto& [table, value] : keys.entries()) {
    if (value.table() == nullptr) {
      texts.push_back(fmt::format("{} = {}", table, to_text(value)));
      continue;
    }
    for (const auto& [key, inner] : value.table()->entries()) {
      texts.push_back(fmt::format("{}.{} = {}", table, key, to_text(inner)));
    }
  }
  return fmt::format("{}", fmt::join(texts, ", "));
}

// One [[arm]] or [[factor.value]].
Result<Layer> read_layer(const SpecValue& value, const std::string& what, Experiment::Kind kind) {
  Layer layer{{}, *value.table()};
  SpecReader reader(*value.table(), what, value.place);
  layer.name = reader.text("name", "");
  if (layer.name.empty()) reader.complain("name", "is missing: every one needs its own");
  if (kind == Experiment::Kind::kPrograms) {
    reader.table("environment");
    read_texts(reader, "flags");
  } else {
    for (const std::string_view run_table : kRunTables) reader.value(run_table);
  }
  RETURN_IF_ERROR(reader.finish());
  layer.keys.erase("name");
  return layer;
}

// All tables of a list such as [[arm]], which have different names.
Result<std::vector<Layer>> read_layers(const SpecValue& parent, std::string_view key,
                                       const std::string& title, const std::string& what,
                                       Experiment::Kind kind) {
  ASSIGN_OR_RETURN(const auto tables, tables_of(*parent.table(), key, key));
  std::vector<Layer> layers;
  for (const SpecValue* table : tables) {
    ASSIGN_OR_RETURN(auto layer, read_layer(*table, title, kind));
    layers.push_back(std::move(layer));
  }
  RETURN_IF_ERROR(check_names(names_of(layers), what, parent.place));
  return layers;
}

// A [[factor]] in short: one key, or one flag of a program, takes each value.
Result<std::vector<Layer>> short_values(SpecReader& reader, const SpecPlace& place,
                                        Experiment::Kind kind) {
  const bool programs = kind == Experiment::Kind::kPrograms;
  const std::string name = reader.text(programs ? "flag" : "key", "");
  const SpecValue* values = reader.value("values");
  std::vector<Layer> layers;
  if (name.empty() || values == nullptr || values->list() == nullptr) {
    reader.complain("values", fmt::format("is missing: write {} and values = [..], or each value "
                                          "under [[factor.value]]",
                                          programs ? "flag = \"--FLAG\"" : "key = \"TABLE.KEY\""));
    return layers;
  }
  for (const SpecValue& value : *values->list()) {
    Layer& layer = layers.emplace_back(plain_text(value));
    const std::string key = programs ? "flags" : name;
    const SpecValue both{.value = SpecList{{name, value.place}, value}, .place = value.place};
    if (const auto set = set_spec(layer.keys, key, programs ? both : value); !set) {
      return fail(set.error().code, fmt::format("{}: {}", place.text(), set.error().message));
    }
  }
  return layers;
}

// Reads the values of one [[factor]], and appends the factor.
Result<std::vector<Layer>> read_factor(const SpecValue& value, Experiment& experiment) {
  SpecReader reader(*value.table(), "[[factor]]", value.place);
  const std::string name = reader.text("name", "");
  if (name.empty() || name == "arm" || name == "seed") {
    reader.complain("name", "is missing, 'arm' or 'seed': every factor needs a name of its own");
  }
  const std::string what = "values of factor '" + name + "'";
  std::vector<Layer> layers;
  if (reader.has("value")) {
    ASSIGN_OR_RETURN(layers,
                     read_layers(value, "value", "[[factor.value]]", what, experiment.kind));
    if (reader.has("values")) {
      reader.complain("values", "are another way to write [[factor.value]]: use one");
    }
  } else {
    ASSIGN_OR_RETURN(layers, short_values(reader, value.place, experiment.kind));
    RETURN_IF_ERROR(check_names(names_of(layers), what, value.place));
  }
  if (layers.empty()) reader.complain("values", "is empty: name one at least");
  RETURN_IF_ERROR(reader.finish());
  experiment.factors.push_back({name, names_of(layers)});
  return layers;
}

}  // namespace

Result<std::vector<bool>> select_cells(const SpecValue& select, const std::string& name,
                                       const Experiment& experiment,
                                       const std::vector<Cell>& cells) {
  std::vector<bool> selected(cells.size(), true);
  SpecReader reader(*select.table(), name, select.place);
  if (const SpecValue* value = reader.value("arm")) {
    ASSIGN_OR_RETURN(const auto arms,
                     select_names(*value, "the plan's list of arms", names_of(experiment.arms)));
    for (size_t i = 0; i < cells.size(); ++i) selected[i] = arms[cells[i].arm];
  }
  for (size_t f = 0; f < experiment.factors.size(); ++f) {
    const Factor& factor = experiment.factors[f];
    const SpecValue* value = reader.value(factor.name);
    if (value == nullptr) continue;
    ASSIGN_OR_RETURN(const auto values,
                     select_names(*value, fmt::format("factor '{}'", factor.name), factor.values));
    for (size_t i = 0; i < cells.size(); ++i) {
      selected[i] = selected[i] && values[cells[i].values[f]];
    }
  }
  RETURN_IF_ERROR(reader.finish());
  return selected;
}

std::string plain_text(const SpecValue& value) {
  return value.string() != nullptr ? *value.string() : to_text(value);
}

std::vector<std::string> read_texts(SpecReader& reader, std::string_view key) {
  std::vector<std::string> texts;
  const SpecValue* value = reader.value(key);
  if (value == nullptr) return texts;
  if (value->list() == nullptr) {
    reader.complain(key, "takes a list of texts, such as [\"one\", \"two\"]");
    return texts;
  }
  std::ranges::transform(*value->list(), std::back_inserter(texts), plain_text);
  return texts;
}

std::vector<const SpecTable*> Layers::of(const Cell& cell) const {
  std::vector<const SpecTable*> keys;
  for (size_t i = 0; i < cell.values.size(); ++i) {
    keys.push_back(&factors[i][cell.values[i]].keys);
  }
  keys.push_back(&arms[cell.arm].keys);
  return keys;
}

Result<Layers> read_parts(const SpecValue& file, SpecReader& top, Experiment& experiment) {
  const SpecTable& table = *file.table();
  const bool programs = experiment.kind == Experiment::Kind::kPrograms;
  Layers layers;
  ASSIGN_OR_RETURN(layers.arms, read_layers(file, "arm", "[[arm]]", "arms", experiment.kind));
  if (layers.arms.size() < (programs ? 2 : 1)) {
    return invalid("{}: the plan has {}: write [[arm]] with name = \"...\" and what sets it apart",
                   file.place.text(), programs ? "fewer than two arms" : "no arm");
  }
  for (const Layer& arm : layers.arms) {
    experiment.arms.push_back({arm.name, settings_text(arm.keys)});
  }
  ASSIGN_OR_RETURN(const auto factors, tables_of(table, "factor", "factor"));
  for (const SpecValue* factor : factors) {
    ASSIGN_OR_RETURN(auto values, read_factor(*factor, experiment));
    layers.factors.push_back(std::move(values));
  }
  RETURN_IF_ERROR(check_names(names_of(experiment.factors), "factors", file.place));
  const std::vector<std::string> arms = names_of(layers.arms);
  const std::vector<std::string_view> known(arms.begin(), arms.end());
  experiment.baseline = top.choice("baseline", 0, known);
  for (const std::string_view key : {"arm", "factor", "threshold", "skip", "only"}) top.value(key);
  RETURN_IF_ERROR(top.finish());
  RETURN_IF_ERROR(choose_cells(table, experiment));
  if (experiment.cells.empty() || experiment.runs() > kMaxRuns) {
    return invalid(
        "{}: the plan has {} runs, and should have 1 to {}: look at [[skip]], [[only]], factors "
        "and seeds",
        file.place.text(), experiment.runs(), kMaxRuns);
  }
  ASSIGN_OR_RETURN(const auto thresholds, tables_of(table, "threshold", "threshold"));
  for (const SpecValue* threshold : thresholds) {
    RETURN_IF_ERROR(read_threshold(*threshold, experiment));
  }
  return layers;
}

}  // namespace pacecar::ab
