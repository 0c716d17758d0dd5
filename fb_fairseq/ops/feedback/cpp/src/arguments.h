// The structures of the arguments of calls of C++, and the activations: see arguments.def.
#pragma once
#include <cstdint>

#define ACTIVATION(name) name,
#define STRUCT(name)
#define FIELD(type, name)
#define OPTIONAL(type, name)
#define END
enum class Activation : int64_t {
#include "arguments.def"
};
#undef ACTIVATION
#undef STRUCT
#undef FIELD
#undef OPTIONAL
#undef END

typedef float* KeysValues[2];

#define ACTIVATION(name)
#define STRUCT(name) struct name {
#define FIELD(type, name) type name;
#define OPTIONAL(type, name) type name;
#define END };
#include "arguments.def"
#undef ACTIVATION
#undef STRUCT
#undef FIELD
#undef OPTIONAL
#undef END
