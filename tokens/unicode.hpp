// Characters: normal forms, small letters, categories. From tables that scripts/unicode_tables.py writes.
#pragma once

#include <string>
#include <string_view>

namespace harmonics::tokens {

namespace unicode {
// Records in hexadecimal, separated by spaces: "FIRST+N" of codes in a row, "CODE+N=A,B" of what belongs to them.
extern const char *const kCanonical,
    *const kCompatible, *const kExcluded, *const kClasses, *const kLower, *const kMarks, *const kPunctuation,
                                                                                             *const kOther,
                                                                                                 *const kNumbers,
                                                                                                     *const kWord;
}  // namespace unicode

enum class NormalForm { nfc, nfd, nfkc, nfkd };

// Texts are valid UTF-8.
std::string normal_form(std::string_view text, NormalForm form);
// Each character for itself: a final sigma is as any other.
std::string lowercase(std::string_view text);

bool is_mark(char32_t c);                 // category Mn
bool is_punctuation(char32_t c);          // category P
bool is_punctuation_of_bert(char32_t c);  // category P, and signs of ASCII that are no letters and digits
bool is_other(char32_t c);                // categories Cc, Cf and Co
bool is_number(char32_t c);               // category N
bool is_white_space(char32_t c);
bool is_of_word(char32_t c);    // letters, marks, digits, connectors: what \w is in Rust
bool is_ideograph(char32_t c);  // of CJK, as BERT counts them

void append(std::string& text, char32_t c);
std::u32string characters(std::string_view text);

}  // namespace harmonics::tokens
