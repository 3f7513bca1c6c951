#include "bench/hosts/launcher.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "bench/perf/command_line.h"

namespace pacecar::hosts {
namespace {

constexpr std::string_view kHost = "{host}";
constexpr std::string_view kCommand = "{command}";

// None of them may ask for input, as there is no terminal. srun and kubectl pass standard input on;
// its end ends the agent.
constexpr std::array<std::pair<std::string_view, std::string_view>, 3> kLaunchers = {{
    {"ssh", "ssh -o BatchMode=yes -o ConnectTimeout=10 -o ServerAliveInterval=15 {host}"},
    {"srun", "srun --nodes=1 --ntasks=1 --overlap --unbuffered --nodelist={host}"},
    {"kubectl", "kubectl exec -i {host} --"},
}};

bool holds(std::string_view word, std::string_view mark) { return word.find(mark) != word.npos; }

std::string replaced(std::string word, std::string_view mark, const std::string& value) {
  for (size_t at = word.find(mark); at != word.npos; at = word.find(mark, at + value.size())) {
    word.replace(at, mark.size(), value);
  }
  return word;
}

// Whether this program passes its words to a shell on the other host.
bool joins_words(std::string_view program) {
  const std::string_view name = program.substr(program.rfind('/') + 1);
  return name == "ssh" || name == "rsh" || name == "remsh";
}

}  // namespace

Result<std::vector<std::string>> shell_words(const std::string& line) {
  std::vector<std::string> words;
  bool within = false;  // a word, perhaps an empty one
  char quote = 0;
  for (size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    const bool escaped = c == '\\' && quote != '\'' && i + 1 < line.size();
    if (quote == 0 && !escaped && (c == ' ' || c == '\t' || c == '\n')) {
      within = false;
      continue;
    }
    if (!std::exchange(within, true)) words.emplace_back();
    if (escaped) {
      words.back() += line[++i];
    } else if (quote == 0 && (c == '\'' || c == '"')) {
      quote = c;
    } else if (c == quote) {
      quote = 0;
    } else {
      words.back() += c;
    }
  }
  if (quote == 0) return words;
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("'{}' opens a quote and does not close it", line));
}

Result<Launcher> Launcher::parse(const std::string& text) {
  const auto known =
      std::ranges::find(kLaunchers, text, &std::pair<std::string_view, std::string_view>::first);
  auto words = shell_words(known == kLaunchers.end() ? text : std::string(known->second));
  if (!words) return fail(words.error().code, "--launch: " + words.error().message);
  if (words->empty() || words->front().empty()) {
    return fail(ErrorCode::kInvalidArgument, "--launch is empty: write --launch ssh");
  }
  if (std::ranges::none_of(*words, [](const auto& word) { return holds(word, kHost); })) {
    words->emplace_back(kHost);
  }
  return Launcher(std::move(*words));
}

std::vector<std::string> Launcher::command(const Host& host,
                                           std::span<const std::string> words) const {
  std::vector<std::string> all;
  bool placed = false;
  for (const std::string& word : words_) {
    placed = placed || holds(word, kCommand);
    all.push_back(replaced(replaced(word, kHost, host.target), kCommand, perf::shell_line(words)));
  }
  if (placed) return all;
  const bool quoted = joins_words(words_.front());
  for (const std::string& word : words) all.push_back(quoted ? perf::shell_quoted(word) : word);
  return all;
}

}  // namespace pacecar::hosts
