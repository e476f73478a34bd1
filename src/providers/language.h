// Languages by all the names that clients have for them.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace atl::providers {

enum class Language : std::uint8_t { python, javascript, bash };

// "python3", "nodejs" and so on; without case, empty is Python. nullopt: none of ours.
std::optional<Language> parse_language(std::string_view name);
std::string_view name_of(Language language);

}  // namespace atl::providers
