// Included before every line of mlx-c.
#pragma once

// 1. libstdc++ before GCC 13 lacks std::format; mlx-c 0.7.0 uses it for four error texts with plain "{}" fields.
#include <version>
#if defined(__has_include)
#if __has_include(<format>)
#include <format>
#endif
#endif
#ifndef __cpp_lib_format
#include <sstream>
#include <string>
#include <string_view>
namespace std {
inline void rmlx_format_to(ostringstream& out, string_view pattern) { out << pattern; }
template <class First, class... Rest>
void rmlx_format_to(ostringstream& out, string_view pattern, const First& first, const Rest&... rest) {
  const auto at = pattern.find("{}");
  if (at == string_view::npos) {
    out << pattern;
    return;
  }
  out << pattern.substr(0, at) << first;
  rmlx_format_to(out, pattern.substr(at + 2), rest...);
}
template <class... Args>
string format(string_view pattern, const Args&... args) {
  ostringstream out;
  rmlx_format_to(out, pattern, args...);
  return out.str();
}
} // namespace std
#endif

// 2. mlx-c 0.7.0 passes an exception's text to its error function as the printf format, so a '%' in a file name crashes.
// Each use of the macro has one argument, which becomes the argument of a constant format here.
#include "mlx/c/error.h"
#undef mlx_error
#define mlx_error(text) _mlx_error(__FILE__, __LINE__, "%s", text)
