/* Facts of Python's str, by which the official scores of question answering are defined. */
#pragma once

#include "base/mem.h"

bool character_is_space(uint32_t scalar); /* str.isspace(): where str.split() splits */
bool character_is_word(uint32_t scalar);  /* \w of re: letters, digits, other numbers and _ */
/* Appends str.lower() of a text in UTF-8. A Σ becomes ς behind a word character where none follows, else σ. */
void characters_lower(const char *text, size_t len, Buf *out);
