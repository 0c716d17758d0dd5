// The structures of the arguments of native calls, and the text that describes them: see arguments.def.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>

// In the order of ACTIVATIONS in ops/layers.py.
#define ACTIVATIONS(each) each(relu) each(relu_squared) each(gelu) each(gelu_accurate) each(tanh) each(linear)

#define ENUMERATOR(name) name,
enum class Activation : int64_t { ACTIVATIONS(ENUMERATOR) };
#undef ENUMERATOR

typedef float* KeysValues[2];

#define STRUCT(name) struct name { static constexpr const char* NAME = #name;
#define FIELD(type, name) type name;
#define OPTIONAL(type, name) type name;
#define END };
#include "arguments.def"
#undef STRUCT
#undef FIELD
#undef OPTIONAL
#undef END

// A type's name in structures.py.
template <class T>
std::string type_name() {
  if constexpr (std::is_array_v<T>) {
    return type_name<std::remove_extent_t<T>>() + "[" + std::to_string(std::extent_v<T>) + "]";
  } else if constexpr (std::is_pointer_v<T>) {
    return type_name<std::remove_cv_t<std::remove_pointer_t<T>>>() + "*";
  } else if constexpr (std::is_enum_v<T>) {
    return type_name<std::underlying_type_t<T>>();
  } else if constexpr (std::is_floating_point_v<T>) {
    return "float" + std::to_string(8 * sizeof(T));
  } else if constexpr (std::is_integral_v<T>) {
    return (std::is_signed_v<T> ? "int" : "uint") + std::to_string(8 * sizeof(T));
  } else {
    return T::NAME;
  }
}

// The layout of all structures: for each a line "= structure", lines "field type offset size", with a "?" behind the
// type of an optional field, and a line "(end) size". Before them "= Activation", and the activations.
inline std::string layout_text() {
  std::string text = "= Activation\n";
  auto line = [&](const std::string& name, const std::string& type, size_t offset, size_t size) {
    text += name + " " + type + " " + std::to_string(offset) + " " + std::to_string(size) + "\n";
  };
#define ENUMERATOR(name) text += #name "\n";
  ACTIVATIONS(ENUMERATOR)
#undef ENUMERATOR
#define STRUCT(name) { using Structure = name; text += "= " #name "\n";
#define LINE(name, mark) \
  line(#name, type_name<decltype(Structure::name)>() + mark, offsetof(Structure, name), sizeof(Structure::name));
#define FIELD(type, name) LINE(name, "")
#define OPTIONAL(type, name) LINE(name, "?")
#define END text += "(end) " + std::to_string(sizeof(Structure)) + "\n"; }
#include "arguments.def"
#undef STRUCT
#undef LINE
#undef FIELD
#undef OPTIONAL
#undef END
  return text;
}
