#include "bench/cli/command_line.h"

#include <algorithm>
#include <array>
#include <new>

#include "bench/cli/files.h"
#include "bench/cli/help.h"
#include "transport/base/edit_distance.h"
#include "transport/base/invalid.h"
#include "transport/base/to_number.h"

namespace pacecar::cli {
namespace {

constexpr double kLongestReach = 3600;  // seconds
// Flags that are not passed on to other hosts.
constexpr std::array<std::string_view, 8> kOwnFlags = {
    "--hosts", "--launch", "--ssh", "--remote", "--reach", "--json", "--quiet", "--no-color"};

// The arguments in the order that CLI11 takes them, the last first. `--json FILE.json` becomes
// `--json=FILE.json`; after `--json`, a word without that ending is not its file.
std::vector<std::string> words_of(int argc, const char* const* argv, bool reads_json) {
  std::vector<std::string> words;
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    const bool file = word.ends_with(".json") && !words.empty() && words.back() == kJsonFlag;
    if (file && !reads_json) {
      words.back() += fmt::format("={}", word);
    } else {
      words.emplace_back(word);
    }
  }
  std::reverse(words.begin(), words.end());
  return words;
}

// The error for arguments that were not understood. The first that looks like a flag is reported:
// the others may be its value.
std::string unknown_word(const CLI::App& app, const ParseHints& hints) {
  const std::vector<std::string> left = app.remaining();
  const auto flag = std::find_if(left.begin(), left.end(), [](const std::string& word) {
    return word.size() > 1 && word.front() == '-';
  });
  if (flag == left.end()) return fmt::format("'{}' is one word too many", left.front());
  const std::string name = flag->substr(0, flag->find('='));
  if (hints.unknown_flag != nullptr) {
    if (std::string sentence = hints.unknown_flag(name); !sentence.empty()) return sentence;
  }
  std::vector<std::string> known;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& long_name : option->get_lnames()) known.push_back("--" + long_name);
  }
  return fmt::format("there is no flag '{}'{}", name, did_you_mean(name, known));
}

}  // namespace

Result<std::string> parse_command_line(CLI::App& app, int argc, const char* const* argv,
                                       const ParseHints& hints) {
  app.set_help_flag("-h,--help")->group(kSilent);
  app.set_help_all_flag("--help-all")->group(kSilent);
  if (app.get_option_no_throw("--version") == nullptr) {
    app.set_version_flag("--version", fmt::format("pacecar {}; 'pacecar --version' prints more\n",
                                                  PACECAR_VERSION))
        ->group(kSilent);
  }
  if (argc == 2 && std::string_view(argv[1]) == "--describe") return describe(app);
  try {
    app.parse(words_of(argc, argv, hints.reads_json));
  } catch (const CLI::CallForHelp&) {
    return help_of(app, Shown::kFirst);
  } catch (const CLI::CallForAllHelp&) {
    return help_of(app, Shown::kAll);
  } catch (const CLI::CallForVersion& version) {
    return std::string(version.what());
  } catch (const CLI::ExtrasError&) {
    return invalid("{} (see '{} --help-all')", unknown_word(app, hints), app.get_name());
  } catch (const CLI::ParseError& error) {
    return invalid("{} (see '{} --help-all')", error.what(), app.get_name());
  }
  return std::string();
}

std::string shell_quoted(const std::string& word) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+./:=,@%";
  if (!word.empty() && word.find_first_not_of(kPlain) == std::string::npos) return word;
  std::string quoted = "'";
  for (const char letter : word) quoted += letter == '\'' ? "'\\''" : std::string(1, letter);
  return quoted + "'";
}

std::string shell_line(std::span<const std::string> words) {
  std::string line;
  for (const std::string& word : words) line += (line.empty() ? "" : " ") + shell_quoted(word);
  return line;
}

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
  return invalid("'{}' opens a quote and does not close it", line);
}

void add_json_flag(CLI::App& app, std::string& file, const std::string& what) {
  const auto without_file = [](std::string& value) {
    if (value == "true") value = kStandardOutput;  // CLI11's value of a flag without one
    return std::string();
  };
  app.add_flag(std::string(kJsonFlag), file,
               what + " as JSON, to standard output or to a file: --json=FILE")
      ->transform(CLI::Validator(without_file, ""));
}

CLI::Validator whole_number(uint64_t min, uint64_t max) {
  return CLI::Validator(
      [min, max](std::string& text) {
        const auto value = to_number<uint64_t>(text);
        if (value && *value >= min && *value <= max) return std::string();
        return fmt::format("'{}' is not a whole number from {} to {}", text, min, max);
      },
      "");
}

CLI::Validator byte_count(uint64_t min, uint64_t max) {
  return CLI::Validator(
      [min, max, in_bytes = CLI::AsSizeValue(false)](std::string& text) {
        std::string bytes = text;
        try {
          if (in_bytes(bytes).empty() && whole_number(min, max)(bytes).empty()) {
            text = std::to_string(to_number<uint64_t>(bytes).value_or(0));  // CLI11 reads 010 as 8
            return std::string();
          }
        } catch (const CLI::ValidationError&) {  // it is no number, or too large a one
        }
        return fmt::format(
            "'{}' is not a number of bytes from {} to {} (K, M and G multiply by 1024)", text, min,
            max);
      },
      "");
}

CLI::Validator positive_number(double max) {
  return CLI::Validator(
      [max](std::string& text) {
        char* end = nullptr;
        const double value = std::strtod(text.c_str(), &end);
        if (*end == '\0' && value > 0 && value <= max) return std::string();
        return fmt::format("'{}' is not a number above 0 and at most {:g}", text, max);
      },
      "");
}

CLI::Validator seconds(double max) {
  return CLI::Validator(
      [max](std::string& text) {
        std::string number = text.ends_with('s') ? text.substr(0, text.size() - 1) : text;
        if (!positive_number(max)(number).empty()) {
          return fmt::format("'{}' is not a number of seconds above 0 and at most {:g}", text, max);
        }
        text = number;
        return std::string();
      },
      "");
}

CLI::Option* add_hosts_flags(CLI::App& app, HostsFlags& flags, const std::string& what) {
  app.option_defaults()->group("Many hosts");
  auto* hosts =
      app.add_option("--hosts", flags.hosts,
                     what +
                         ": a file with one on each line, names such as gpu[01-16],login1, or "
                         "slurm for the job's nodes")
          ->check(CLI::Validator(
              [](std::string& text) { return std::string(text.empty() ? "it names no host" : ""); },
              ""));
  app.add_option("--ssh", flags.launch)->needs(hosts)->group(kSilent);  // an old name
  app.add_option("--launch", flags.launch,
                 "how to reach them: ssh, srun, kubectl, or a command such as "
                 "'docker exec -i {host}'")
      ->needs(hosts)
      ->capture_default_str();
  app.add_option("--remote", flags.remote, "the program there")
      ->needs(hosts)
      ->capture_default_str();
  app.add_option("--reach", flags.reach_s, "seconds within which a host must answer")
      ->check(positive_number(kLongestReach))
      ->needs(hosts)
      ->capture_default_str();
  app.option_defaults()->group("Options");
  return hosts;
}

std::vector<std::string> given_flags(const CLI::App& app,
                                     const std::vector<std::string_view>& omitted) {
  std::vector<std::string> words;
  for (const CLI::Option* option : app.get_options()) {
    if (option->count() == 0 || option->get_positional()) continue;
    const std::vector<std::string>& names = option->get_lnames();
    const std::string name =
        names.empty() ? "-" + option->get_snames().front() : "--" + names.front();
    if (std::ranges::find(kOwnFlags, name) != kOwnFlags.end()) continue;
    if (std::ranges::find(omitted, name) != omitted.end()) continue;
    if (option->get_items_expected_max() == 0) {
      words.push_back(name);
      continue;
    }
    for (const std::string& value : option->results()) {
      words.push_back(name);
      words.push_back(value);
    }
  }
  return words;
}

int code_of(const Result<int>& returned, const Console& console,
            ExitCode (*exit_code)(const Error& error)) {
  if (returned) return *returned;
  console.error(returned.error().message);
  return exit_code(returned.error());
}

void add_console_flags(CLI::App& app, ConsoleFlags& flags) {
  const bool letter = app.get_option_no_throw("-q") == nullptr;
  app.add_flag(letter ? "-q,--quiet" : "--quiet", flags.quiet)->group(kSilent);
  app.add_flag("--no-color", flags.no_color)->group(kSilent);
}

int run_with_code(CLI::App& app, int argc, char** argv, const SubcommandRules& rules,
                  const std::function<Result<int>(const Console&)>& run) {
  ConsoleFlags flags;
  add_console_flags(app, flags);
  const auto help = parse_command_line(app, argc, argv, rules.hints);
  const Console console(flags.quiet, !flags.no_color);
  if (!help) {
    console.error(help.error().message);
    return kExitUsage;
  }
  if (!help->empty()) {
    fmt::print("{}", *help);
    return kExitOk;
  }
  Result<int> code = kExitOk;
  try {
    code = run(console);
  } catch (const std::bad_alloc&) {
    code = fail(ErrorCode::kUnavailable,
                "there is not enough memory: ask for less, or raise the limit (ulimit -v, or that "
                "of the container)");
  }
  return code_of(code, console, rules.exit_code);
}

}  // namespace pacecar::cli
