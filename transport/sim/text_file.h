// Small files that people write, line by line: words apart by blanks, comments from a # on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "transport/base/result.h"

namespace pacecar {

struct TextLine {
  size_t number = 0;                    // from 1
  std::vector<std::string_view> words;  // at least one; they point into the text
};

Result<std::string> read_text_file(const std::string& path);  // Errors: kSystem, naming the file.

// The lines that are neither blank nor all comment.
std::vector<TextLine> text_lines(std::string_view text);

// A decimal number up to `max`; nothing for any other text.
std::optional<uint64_t> parse_number(std::string_view word, uint64_t max);

// A decimal number from 0 to `max`, without an exponent; nothing for any other text.
std::optional<double> parse_decimal(std::string_view word, double max);

// For messages: what cannot be printed becomes '?', and only the beginning is kept.
std::string shown(std::string_view word);

// kInvalidArgument: "FILE, line 7: REASON"; the reason says how to mend the line.
tl::unexpected<Error> bad_line(const std::string& file, size_t line, const std::string& reason);

}  // namespace pacecar
