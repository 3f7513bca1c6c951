// The pages of 'pacecar help TOPIC': examples and limits of a group of subcommands.
#pragma once

#include <string_view>

namespace pacecar {

// Null: no page has this name.
const std::string_view* topic(std::string_view name);

}  // namespace pacecar
