#include "scalar_texts.hpp"

#include <unordered_map>

#include "kernels/shared/types.hpp"

namespace harmonics::kernels {

const char* const kScalarMacros = R"(
#define LOGISTIC(T, x) ((x >= 0 ? (T)1 : exp(-fabs(x))) / ((T)1 + exp(-fabs(x))))
)";

namespace {

using Texts = std::unordered_map<std::string_view, const char*>;

// Expressions for floats. $a, $b, $c: operands; $T: their type; $U: the unsigned type of the same width.
const Texts& float_texts() {
  static const Texts texts = {
      {"neg", "-$a"},
      {"abs", "fabs($a)"},
      {"sign", "($a > 0 ? ($T)1 : $a < 0 ? ($T)-1 : $a)"},
      {"floor", "floor($a)"},
      {"ceil", "ceil($a)"},
      {"round", "rint($a)"},
      {"exp", "exp($a)"},
      {"expm1", "expm1($a)"},
      {"log", "log($a)"},
      {"log1p", "log1p($a)"},
      {"sqrt", "sqrt($a)"},
      {"rsqrt", "(($T)1 / sqrt($a))"},
      {"sin", "sin($a)"},
      {"cos", "cos($a)"},
      {"tanh", "tanh($a)"},
      {"tan", "tan($a)"},
      {"asin", "asin($a)"},
      {"acos", "acos($a)"},
      {"atan", "atan($a)"},
      {"sinh", "sinh($a)"},
      {"cosh", "cosh($a)"},
      {"asinh", "asinh($a)"},
      {"acosh", "acosh($a)"},
      {"atanh", "atanh($a)"},
      {"atan2", "atan2($a, $b)"},
      {"is_nan", "(uchar)($a != $a)"},
      {"is_inf", "(uchar)(fabs($a) == INFINITY)"},
      {"erf", "erf($a)"},
      {"logistic", "LOGISTIC($T, $a)"},
      {"add", "($a + $b)"},
      {"sub", "($a - $b)"},
      {"mul", "($a * $b)"},
      {"div", "($a / $b)"},
      {"pow", "pow($a, $b)"},
      {"maximum", "($a != $a || $a > $b ? $a : $b)"},
      {"minimum", "($a != $a || $a < $b ? $a : $b)"},
      {"remainder", "fmod($a, $b)"},
  };
  return texts;
}

// Expressions for integers: overflow wraps, quotient and remainder by zero are 0, shifts by the width or more give 0.
const Texts& whole_texts() {
  static const Texts texts = {
      {"neg", "($T)(($U)0 - ($U)$a)"},
      {"abs", "($a < 0 ? ($T)(($U)0 - ($U)$a) : $a)"},
      {"sign", "($T)(($a > 0) - ($a < 0))"},
      {"add", "($T)(($U)$a + ($U)$b)"},
      {"sub", "($T)(($U)$a - ($U)$b)"},
      {"mul", "($T)(($U)$a * ($U)$b)"},
      {"div", "($b == 0 ? ($T)0 : $b == ($T)-1 && ($T)-1 < 0 ? ($T)(($U)0 - ($U)$a) : ($T)($a / $b))"},
      {"remainder", "($b == 0 || ($b == ($T)-1 && ($T)-1 < 0) ? ($T)0 : ($T)($a % $b))"},
      {"maximum", "($a > $b ? $a : $b)"},
      {"minimum", "($a < $b ? $a : $b)"},
      {"bit_and", "($T)($a & $b)"},
      {"bit_or", "($T)($a | $b)"},
      {"bit_xor", "($T)($a ^ $b)"},
      {"shift_left", "(($U)$b < 8 * sizeof($T) ? ($T)(($U)$a << ($U)$b) : ($T)0)"},
      {"shift_right_logical", "(($U)$b < 8 * sizeof($T) ? ($T)(($U)$a >> ($U)$b) : ($T)0)"},
      {"shift_right_arithmetic", "(($U)$b < 8 * sizeof($T) ? ($T)($a >> ($U)$b) : $a < 0 ? ($T)-1 : ($T)0)"},
  };
  return texts;
}

const Texts& other_texts() {
  static const Texts texts = {
      {"equal", "(uchar)($a == $b)"},      {"less", "(uchar)($a < $b)"},       {"less_equal", "(uchar)($a <= $b)"},
      {"logical_and", "(uchar)($a & $b)"}, {"logical_or", "(uchar)($a | $b)"}, {"logical_xor", "(uchar)($a ^ $b)"},
      {"logical_not", "(uchar)!$a"},       {"select", "($a ? $b : $c)"},       {"stop_gradient", "$a"},
  };
  return texts;
}

std::string filled(const char* text, const ScalarWords& w) {
  std::string s;
  for (const char* p = text; *p; ++p) {
    if (*p != '$') {
      s += *p;
      continue;
    }
    switch (*++p) {
      case 'a':
        s += w.a;
        break;
      case 'b':
        s += w.b;
        break;
      case 'c':
        s += w.c;
        break;
      case 'T':
        s += w.type;
        break;
      default:
        s += w.unsigned_type;
    }
  }
  return s;
}

}  // namespace

Kind kind_of(uint32_t dtype) { return dtype == HX_BOOL ? Kind::flag : is_float(dtype) ? Kind::real : Kind::whole; }

const char* type_name(uint32_t dtype) {
  switch (dtype) {
    case HX_BOOL:
    case HX_U8:
      return "uchar";
    case HX_I8:
      return "char";
    case HX_I16:
      return "short";
    case HX_U16:
      return "ushort";
    case HX_I32:
      return "int";
    case HX_U32:
      return "uint";
    case HX_I64:
      return "long";
    case HX_U64:
      return "ulong";
    case HX_F16:
    case HX_BF16:
    case HX_F32:
      return "float";
    case HX_F64:
      return "double";
    default:
      return nullptr;
  }
}
const char* word_name(uint32_t dtype) {
  switch (width(dtype)) {
    case 1:
      return "uchar";
    case 2:
      return "ushort";
    case 4:
      return "uint";
    default:
      return "ulong";
  }
}

std::string scalar_text(std::string_view op, Kind operands, const ScalarWords& words) {
  const Texts& other = other_texts();
  if (const auto at = other.find(op); at != other.end()) return filled(at->second, words);
  if (operands == Kind::flag) return "";
  const Texts& texts = operands == Kind::real ? float_texts() : whole_texts();
  const auto at = texts.find(op);
  return at == texts.end() ? "" : filled(at->second, words);
}

}  // namespace harmonics::kernels
