#include "transport/sim/text_file.h"

#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <system_error>
#include <utility>

#include "transport/base/invalid.h"
#include "transport/base/printable.h"
#include "transport/base/to_number.h"

namespace pacecar {

Result<std::string> read_text_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  std::error_code ignored;
  // Folders can be opened, and some devices never end.
  const auto type = std::filesystem::status(path, ignored).type();
  const bool text_ends =
      type == std::filesystem::file_type::regular || type == std::filesystem::file_type::fifo;
  if (file && text_ends) text << file.rdbuf();
  if (!file || !text_ends || text.bad()) {
    return fail(ErrorCode::kSystem,
                fmt::format("'{}' cannot be read: name a file, not a folder or a device, that is "
                            "there and that you may read",
                            path));
  }
  return std::move(text).str();
}

std::vector<TextLine> text_lines(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\r";
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  std::vector<TextLine> lines;
  for (size_t number = 1; !text.empty(); ++number) {
    const size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    line = line.substr(0, line.find('#'));
    TextLine words{.number = number};
    for (;;) {
      const size_t begin = line.find_first_not_of(kBlanks);
      if (begin == std::string_view::npos) break;
      line.remove_prefix(begin);
      words.words.push_back(line.substr(0, line.find_first_of(kBlanks)));
      line.remove_prefix(words.words.back().size());
    }
    if (!words.words.empty()) lines.push_back(std::move(words));
  }
  return lines;
}

std::optional<uint64_t> parse_number(std::string_view word, uint64_t max) {
  const auto value = to_number<uint64_t>(word);
  return value && *value <= max ? value : std::nullopt;
}

std::optional<double> parse_decimal(std::string_view word, double max) {
  const auto value = to_number<double>(word, std::chars_format::fixed);
  return value && *value >= 0 && *value <= max ? value : std::nullopt;  // not for NaN either
}

std::string shown(std::string_view word) {
  constexpr size_t kLongest = 40;
  return printable(word, kLongest);
}

tl::unexpected<Error> bad_line(const std::string& file, size_t line, const std::string& reason) {
  return invalid("{}, line {}: {}", file, line, reason);
}

}  // namespace pacecar
