// Unicode characters: normal forms, lower case, categories. scripts/unicode_tables.py generates the tables.
#pragma once

#include <string>
#include <string_view>

namespace harmonics::tokens {

namespace unicode {
// Space-separated records in hexadecimal: "FIRST+N" is the range of N + 1 codes from FIRST on, "CODE+N=A,B" has values
// for it.
extern const char *const kCanonical,
    *const kCompatible,
        *const kExcluded, *const kClasses, *const kLower, *const kMarks, *const kPunctuation,
                                                                             *const kOther, *const kNumbers,
                                                                                                *const kWord,
                                                                                                    *const kOtherMarks;
}  // namespace unicode

enum class NormalForm { nfc, nfd, nfkc, nfkd };

// Texts are valid UTF-8.
std::string normal_form(std::string_view text, NormalForm form);
// Maps characters independently of context: a final sigma is not special.
std::string lowercase(std::string_view text);

bool is_mark(char32_t c);                 // category M
bool is_nonspacing_mark(char32_t c);      // category Mn
bool is_punctuation(char32_t c);          // category P
bool is_punctuation_of_bert(char32_t c);  // category P and ASCII symbols
bool is_other(char32_t c);                // categories Cc, Cf and Co
bool is_number(char32_t c);               // category N
bool is_white_space(char32_t c);
bool is_of_word(char32_t c);    // letters, marks, digits, connectors: \w in Rust
bool is_ideograph(char32_t c);  // CJK, in BERT's ranges

void append(std::string& text, char32_t c);
std::u32string characters(std::string_view text);

}  // namespace harmonics::tokens
