/* Templates of numbers and dates, by their documentation on the English Wikipedia. What Cairn cannot give as the
   template shows it is left out, so that no wrong number becomes text. Conversions are left out: "5 km", not "5 km (3.1
   mi)". */

#include "tasks/pretrain/wiki/wikitext_internal.h"

#define COUNT(list) (sizeof(list) / sizeof *(list))
#define MOST_WORD   24 /* bytes of a unit, a range's word or an option */

typedef struct {
    Wikitext *w;
    const Token *t;
    uint32_t from, to; /* the parameter that was found last */
} Reader;

/* ---- parameters ---- */

static bool find(Reader *r, const char *name, int n)
{
    return wikitext_parameter(r->w, r->t, name, n, &r->from, &r->to) && r->from < r->to;
}

/* The parameter that was found, if it is short; else "?". */
static const char *word_of(const Reader *r, char word[MOST_WORD])
{
    size_t n = r->to - r->from;
    if (n >= MOST_WORD) return strcpy(word, "?");
    memcpy(word, r->w->text + r->from, n);
    word[n] = '\0';
    return word;
}

static bool find_word(Reader *r, int n, char word[MOST_WORD])
{
    word[0] = '\0';
    if (!find(r, NULL, n)) return false;
    word_of(r, word);
    return true;
}

/* Whether a named parameter is absent, or one of the values, which have commas between. */
static bool is_one_of(Reader *r, const char *name, const char *values)
{
    return !find(r, name, 0) || str_list_has(values, ',', r->w->text + r->from, r->to - r->from);
}

static bool is_digit(char c) { return c >= '0' && c <= '9'; }
static void put(Reader *r, const char *text) { wikitext_append(r->w, text, strlen(text)); }
static bool put_found(Reader *r) { return wikitext_append_plain(r->w, r->from, r->to); }

/* Appends `before` and the named parameter. False: it is absent or has markup. */
static bool put_named(Reader *r, const char *name, const char *before)
{
    if (!find(r, name, 0)) return false;
    put(r, before);
    return put_found(r);
}

static char last_char(const Wikitext *w) { return w->words.len ? w->words.data[w->words.len - 1] : '\0'; }

/* Bytes of a minus or plus sign at p. */
static size_t sign_length(const char *p, const char *end)
{
    if (p < end && (*p == '-' || *p == '+')) return 1;
    return end - p >= 3 && memcmp(p, "−", 3) == 0 ? 3 : 0;
}

static bool has_sign(const Reader *r) { return sign_length(r->w->text + r->from, r->w->text + r->to) > 0; }

/* Appends the found parameter as a number: 1,234.5, 1e6 as "1×10^6", 5+1/2 as "5 1/2". False: it is none. */
static bool put_amount(Reader *r)
{
    const char *p = r->w->text + r->from, *end = r->w->text + r->to;
    size_t n = sign_length(p, end);
    bool digit = false, power = false;
    wikitext_append(r->w, p, n);
    for (p += n; p < end;) {
        if (is_digit(*p) || ((*p == ',' || *p == '.') && p + 1 < end && is_digit(p[1]))) {
            digit |= is_digit(*p);
            wikitext_append_char(r->w, *p++);
        } else if (digit && !power && (*p == 'e' || *p == 'E')) {
            put(r, "×10^");
            power = true;
            n = sign_length(++p, end);
            wikitext_append(r->w, p, n);
            p += n;
            if (p == end) return false;
        } else if (digit && *p == '+' && memchr(p, '/', (size_t)(end - p))) {
            wikitext_append_char(r->w, ' ');
            p++;
        } else if (digit && *p == '/') {
            wikitext_append_char(r->w, '/');
            p += p + 1 < end && p[1] == '/' ? 2 : 1; /* 1//2 is 1/2, drawn otherwise */
            if (p == end) return false;
        } else {
            return false;
        }
    }
    return digit;
}

/* ---- quantities ---- */

typedef struct {
    const char *word, *shown;
} Shown;

/* Words between two values, and what is shown; x depends on whether units are shown as symbols. */
static const Shown ranges[] = {
    {"-", "–"},        {"–", "–"},          {"&ndash;", "–"},    {"to", " to "},
    {"to(-)", " to "}, {"to-", " to "},     {"and", " and "},    {"and(-)", " and "},
    {"&", " and "},    {"or", " or "},      {"by", " by "},      {"x", " by "},
    {"×", " by "},     {"&times;", " by "}, {"xx", " × "},       {"*", "×"},
    {"+/-", " ± "},    {"±", " ± "},        {"&plusmn;", " ± "}, {"+", " + "},
    {",", ", "},       {", and", ", and "}, {", or", ", or "},   {"to about", " to about "},
};

static const char *range_of(const char *word)
{
    for (size_t i = 0; i < COUNT(ranges); i++)
        if (strcmp(ranges[i].word, word) == 0) return ranges[i].shown;
    return NULL;
}

/* Appends a unit: as written, but °C, °F, and in words what is per area, and the powers of ten of 22 e6acre. */
static bool put_unit(Reader *r, const char *unit)
{
    static const Shown powers[] = {{"e3", "thousand "}, {"e6", "million "}, {"e9", "billion "}, {"e12", "trillion "}};
    const char *p = unit;
    bool letter = false;
    for (const char *q = unit; *q; q++) letter |= wikitext_letter(*q) || (unsigned char)*q >= 0x80;
    if (!letter || strpbrk(unit, "$?[]{}<>&") || strstr(unit, "£") || strstr(unit, "€")) return false;
    if (*p == 'e' && is_digit(p[1])) {
        size_t n = 1 + strspn(p + 1, "0123456789"), i = 0;
        while (i < COUNT(powers) && (strlen(powers[i].word) != n || memcmp(powers[i].word, p, n) != 0)) i++;
        if (i == COUNT(powers) || p[n] == '\0') return false;
        put(r, powers[i].shown);
        p += n;
    }
    bool people = strncmp(p, "PD/", 3) == 0;
    if (people) put(r, "inhabitants ");
    if (people || *p == '/') put(r, "per ");
    p += people ? 3 : *p == '/';
    size_t n = strlen(p), change = strlen("-change");
    if (n > change && strcmp(p + n - change, "-change") == 0) n -= change;
    if (n == 1 && (*p == 'C' || *p == 'F')) put(r, "°");
    wikitext_append(r->w, p, n);
    return true;
}

/* Whether a value in `small` may follow one in `large`: 6 ft 4 in. */
static bool is_part(const char *large, const char *small)
{
    static const char *const kinds[] = {"mi mile nmi fur furlong ch chain rd fathom yd yard ft foot in inch lk",
                                        "LT longton ton ST t cwt longcwt shortcwt qtr st stone lb oz dr gr kg g",
                                        "y yr year mo month wk week d day h hr hour min m s sec",
                                        "gal impgal USgal qt impqt USqt pt imppt USpt floz impfloz USfloz impoz USoz"};
    for (size_t i = 0; i < COUNT(kinds); i++)
        if (str_list_has(kinds[i], ' ', large, strlen(large)) && str_list_has(kinds[i], ' ', small, strlen(small)))
            return strcmp(large, small) != 0;
    return false;
}

/* Whether {{convert}} shows the value that it is given, and words that do not matter. */
static bool shows_input(Reader *r)
{
    if (find(r, "adj", 0) && strncmp(r->w->text + r->from, "ri", 2) == 0) return false;
    char word[MOST_WORD];
    if (find(r, "abbr", 0) && strcmp(word_of(r, word), "values") == 0) return false;
    if (find(r, "$", 0) || find(r, "input", 0)) return false;
    return is_one_of(r, "disp", "or,flip,b,br,comma,sqbr,slash,s,x,5") && is_one_of(r, "order", "flip") &&
           is_one_of(r, "adj", "on,off,mid,1,flip,nocat");
}

/* {{convert|3|x|4|m}}: "3 by 4 m". {{convert|6|ft|4|in|cm|0}}: "6 ft 4 in". With adj=mid the last parameter follows. */
static bool put_quantity(Reader *r)
{
    char word[MOST_WORD], unit[MOST_WORD], next[MOST_WORD];
    const char *text = r->w->text;
    bool middle = find(r, "adj", 0) && strcmp(word_of(r, word), "mid") == 0;
    bool symbols = wikitext_lower(text[r->t->body]) == 'c' && wikitext_lower(text[r->t->body + 1]) == 'v';
    if (find(r, "abbr", 0)) symbols |= strcmp(word_of(r, word), "on") == 0;
    if (!shows_input(r)) return false;
    int n = 2;
    while (n < 20 && find_word(r, n, word) && range_of(word)) n += 2;
    if (!find_word(r, n, unit)) return false;
    for (int k = 1; k < n; k += 2) {
        if (!find(r, NULL, k) || !put_amount(r)) return false;
        if (k + 1 == n) break;
        find_word(r, k + 1, word);
        bool times = symbols && (strcmp(word, "x") == 0 || strcmp(word, "×") == 0 || strcmp(word, "&times;") == 0);
        if (times && strlen(unit) <= 3) { /* a short unit follows each value: 3 ft × 4 ft */
            put(r, " ");
            put(r, unit);
        }
        put(r, times ? " × " : range_of(word));
    }
    put(r, " ");
    if (!put_unit(r, unit)) return false;
    for (bool range = n > 2; find_word(r, n + 2, next) && find(r, NULL, n + 1); strcpy(unit, next), n += 2) {
        word_of(r, word);
        if (range_of(word)) return false;
        size_t before = r->w->words.len;
        put(r, " ");
        bool amount = put_amount(r), part = amount && !range && is_part(unit, next);
        if (part) put(r, " ");
        if (part && put_unit(r, next)) continue;
        r->w->words.len = before;
        if (amount && !middle) return false; /* a value in parts of an unknown kind */
        break;
    }
    if (find_word(r, n + 1, word) && range_of(word)) return false;
    if (!middle) return true;
    for (n++; find(r, NULL, n + 1);) n++;
    return find(r, NULL, n) && !is_digit(text[r->from]) && put_found(r);
}

/* {{val|9.1|0.2|e=-31|u=kg}}: "(9.1±0.2)×10^−31 kg". */
static bool put_value(Reader *r)
{
    static const char *const refused[] = {"s", "end", "errend", "+errend", "-errend", "suf"};
    char word[MOST_WORD];
    const char *between = NULL;
    for (size_t i = 0; i < COUNT(refused); i++)
        if (find(r, refused[i], 0)) return false;
    bool value = find(r, NULL, 1), power = find(r, "e", 0);
    if (!value && !power) return false;
    if (find(r, "p", 0) && !put_found(r)) return false;
    bool more = find_word(r, 2, word), digits = more && word[0] != '(';
    if (more) between = strcmp(word, "x") == 0 ? " × " : range_of(word);
    if (digits && power) put(r, "(");
    if (value) {
        find(r, NULL, 1);
        bool uncertain = r->w->text[r->to - 1] == ')'; /* 5(2) */
        if (uncertain ? !is_digit(r->w->text[r->from]) || !put_found(r) : !put_amount(r)) return false;
    }
    if (between) {
        put(r, between);
        if (!find(r, NULL, 3) || !put_amount(r) || find(r, NULL, 4)) return false;
    } else if (more) {
        bool two = digits && find(r, NULL, 3);
        if (two && has_sign(r)) return false;
        if (digits) put(r, two ? "+" : "±");
        find(r, NULL, 2);
        if (digits && has_sign(r)) return false;
        if (digits ? !put_amount(r) : !put_found(r)) return false;
        if (two) put(r, "−");
        if (two && (!find(r, NULL, 3) || !put_amount(r))) return false;
    }
    if (digits && power) put(r, ")");
    if (power && !put_named(r, "e", value ? "×10^" : "10^")) return false;
    const char *unit = find(r, "u", 0) ? "u" : find(r, "ul", 0) ? "ul" : NULL;
    if (unit) {
        const char *p = r->w->text + r->from;
        bool tight = *p == '%' || (r->to - r->from == 2 && memcmp(p, "°", 2) == 0);
        if (!put_named(r, unit, tight ? "" : " ")) return false;
    }
    const char *per = find(r, "up", 0) ? "up" : find(r, "upl", 0) ? "upl" : NULL;
    return !per || put_named(r, per, "/");
}

/* {{frac|3}}: "1/3", {{frac|3|4}}: "3/4", {{frac|5|3|4}}: "5 3/4". Sums get brackets: "(n + 1)/2". */
static bool put_fraction(Reader *r)
{
    int n = 0;
    while (n < 4 && find(r, NULL, n + 1)) n++;
    if (n == 0 || n == 4) return false;
    if (is_digit(last_char(r->w))) put(r, " "); /* 5{{frac|1|2}} */
    if (n == 1) put(r, "1/");
    for (int k = 1; k <= n; k++) {
        find(r, NULL, k);
        const char *p = r->w->text + r->from;
        size_t skip = sign_length(p, p + (r->to - r->from));
        bool sum = false;
        for (uint32_t i = r->from + (uint32_t)skip; i < r->to; i++)
            sum |= strchr(" +-/", r->w->text[i]) || sign_length(r->w->text + i, r->w->text + r->to) > 0;
        bool brackets = sum && !(n == 3 && k == 1);
        if (brackets) put(r, "(");
        if (!put_found(r)) return false;
        if (brackets) put(r, ")");
        if (k < n) put(r, n == 3 && k == 1 ? " " : "/");
    }
    return true;
}

/* {{height|ft=6|in=1}}: "6 ft 1 in". */
static bool put_height(Reader *r)
{
    static const char *const units[] = {"m", "cm", "ft", "in"};
    bool any = false;
    for (size_t i = 0; i < COUNT(units); i++) {
        if (!find(r, units[i], 0)) continue;
        if (any) put(r, " ");
        if (!put_amount(r)) return false;
        put(r, " ");
        put(r, units[i]);
        any = true;
    }
    return any;
}

/* ---- dates ---- */

/* "April 1, 1976" or "1 April 1976" from parameters n (year), n + 1 and n + 2. Parts may be missing from the end. */
static bool put_date(Reader *r, int n, bool day_first)
{
    static const char *const months[] = {"January", "February", "March",     "April",   "May",      "June",
                                         "July",    "August",   "September", "October", "November", "December"};
    Reader year = *r, month = *r, day = *r;
    if (!find(&year, NULL, n)) return false;
    bool has_month = find(&month, NULL, n + 1), has_day = has_month && find(&day, NULL, n + 2);
    const char *text = r->w->text;
    while (has_day && day.to - day.from == 2 && text[day.from] == '0') day.from++;
    if (has_day && day_first) {
        if (!put_found(&day)) return false;
        put(r, " ");
    }
    if (has_month && is_digit(text[month.from])) {
        char word[MOST_WORD];
        int number = atoi(word_of(&month, word));
        if (number < 1 || number > 12) return false;
        put(r, months[number - 1]);
    } else if (has_month && !put_found(&month)) {
        return false;
    }
    if (has_month) put(r, " ");
    if (has_day && !day_first) {
        if (!put_found(&day)) return false;
        put(r, ", ");
    }
    return put_found(&year);
}

/* Whether a named parameter says yes. */
static bool is_yes(Reader *r, const char *name) { return find(r, name, 0) && strchr("yY1tT", r->w->text[r->from]); }

/* {{as of|2009|4|5|lc=y}}: "as of 5 April 2009". */
static bool put_as_of(Reader *r)
{
    char word[MOST_WORD];
    if (find(r, "alt", 0)) return put_found(r);
    bool since = is_yes(r, "since"), lower = is_yes(r, "lc");
    if (!is_yes(r, "bare")) put(r, since ? (lower ? "since " : "Since ") : lower ? "as of " : "As of ");
    bool american = find(r, "df", 0) && strcmp(word_of(r, word), "US") == 0;
    return !find(r, "pre", 0) && !find(r, "post", 0) && put_date(r, 1, !american);
}

/* {{circa|1900|1950}}: "c. 1900 – c. 1950". */
static bool put_circa(Reader *r)
{
    put(r, "c.");
    for (int n = 1; n <= 2 && find(r, NULL, n); n++) {
        put(r, n == 1 ? " " : " – c. ");
        if (!put_found(r)) return false;
    }
    return !find(r, NULL, 3);
}

/* {{track gauge|1435mm}}. Names of gauges, as "ussg", are not known. */
static bool put_gauge(Reader *r) { return find(r, NULL, 1) && is_digit(r->w->text[r->from]) && put_found(r); }

/* {{birth date|1976|4|1}}, of whose parameters the first three may be followed by those of a second date. */
static bool put_first_date(Reader *r) { return !find(r, "bc", 0) && put_date(r, 1, is_yes(r, "df")); }

/* A fourth parameter is a time, or begins a second date. */
static bool put_only_date(Reader *r) { return !find(r, NULL, 4) && put_first_date(r); }

bool wikitext_append_number(Wikitext *w, const Token *t, char code)
{
    static const struct {
        char code;
        bool (*put)(Reader *r);
    } forms[] = {{'q', put_quantity},   {'v', put_value}, {'f', put_fraction}, {'h', put_height}, {'d', put_only_date},
                 {'D', put_first_date}, {'a', put_as_of}, {'c', put_circa},    {'g', put_gauge}};
    for (size_t i = 0; i < COUNT(forms); i++)
        if (forms[i].code == code) return forms[i].put(&(Reader){.w = w, .t = t});
    return false;
}

void wikitext_begin_script(Wikitext *w, char sign, uint32_t from, uint32_t end)
{
    if (from >= end) return;
    const char *p = w->text + from, *stop = w->text + end;
    while (p < stop && *p == ' ') p++;
    static const char minus[] = "&minus;";
    bool entity = (size_t)(stop - p) > strlen(minus) && memcmp(p, minus, strlen(minus)) == 0;
    const char *digits = p + (entity ? strlen(minus) : sign_length(p, stop));
    bool other = stop - digits > 2 && (memcmp(digits, "{{", 2) == 0 || memcmp(digits, "''", 2) == 0);
    if (!is_digit(last_char(w)) || digits == stop || !(is_digit(*digits) || other)) return;
    const char *close = digits;
    while (close < stop && is_digit(*close)) close++;
    if (stop - close >= 6 && strncasecmp(close, "</sup>", 6) == 0) close += 6;
    bool fraction = sign == '^' && digits == p && close < stop &&
                    (*close == '/' || (stop - close >= 3 && memcmp(close, "⁄", 3) == 0) ||
                     (stop - close >= 7 && memcmp(close, "&frasl;", 7) == 0));
    wikitext_append_char(w, fraction ? ' ' : sign);
}
