#include "tasks/pretrain/wiki/sentences.h"

#include "text/compose.h"
#include "text/utf8.h"

/* Abbreviations in lower case, without the last full stop. Behind the first a sentence never ends: Mr. Behind the
   second it ends where the next word usually begins one: Inc. The … Behind the third it ends unless a number follows:
   No. 5 */
static const char never_ends[] =
    "adm,approx,asst,attn,atty,brig,bzgl,bzw,c.f,ca,capt,cf,chas,cmdr,col,cols,comdr,cpl,dipl,dr,e.g,ed,eds,ehem,eq,"
    "esp,evtl,fig,figs,fl,fr,geb,gen,geo,gest,ggf,gov,hon,hrsg,i.e,incl,inkl,insb,insp,jas,lat,lfd,lieut,lit,lt,maj,"
    "messrs,mgr,mlle,mme,mr,mrs,ms,mt,mts,nos,pls,pp,pres,prof,pvt,rep,resp,rev,secs,sen,sgt,sog,sq,ss,ssp,st,ste,"
    "subsp,supt,thos,trans,ugs,univ,urspr,vgl,viz,vol,vols,vs,wm,zzgl";
static const char may_end[] =
    "al,assn,assoc,ave,bde,bldg,blvd,bros,co,cont,corp,dept,edn,esq,est,etc,ff,ft,ibid,inc,jr,lb,lbs,ltd,mfg,oz,par,"
    "paras,rd,spp,sr,var";
static const char ends_before_words[] =
    "abb,abs,abt,anm,apr,art,aug,bd,bk,cap,ch,chap,cor,dec,deut,exod,ezek,feb,isa,jan,jer,jul,jun,kap,lev,mar,matt,"
    "no,nov,nr,oct,op,para,pl,prov,pt,ref,rom,sec,sep,sept,ser,str,supp,tab,tel,ver";

/* Words whose capital letter nearly always means the start of a sentence. */
static const char starters[] =
    "A,According,After,All,Also,Although,An,And,Another,As,At,Because,Before,Both,But,By,Despite,During,Each,Early,"
    "Every,Few,For,From,He,Her,Here,His,How,However,I,If,In,It,Its,Later,Many,More,Most,My,No,Nor,Not,Now,Of,On,Once,"
    "One,Only,Or,Other,Our,Over,She,Since,So,Some,Such,That,The,Their,Then,There,These,They,This,Those,Though,Thus,"
    "To,Today,Two,Under,Unlike,Until,Upon,We,What,When,Where,Whether,Which,While,Who,Why,With,Within,Without,Yet,You";

static bool is_starter(const char *next, const char *end)
{
    size_t n = 0;
    while (next + n < end && isalpha((unsigned char)next[n])) n++;
    if (next + n < end && next[n] != ' ' && next[n] != ',' && next[n] != '\'') return false;
    return str_list_has(starters, ',', next, n);
}

static bool is_upper(uint32_t c)
{
    if (c < 0x80) return c >= 'A' && c <= 'Z';
    return c < 0x110000 && unicode_record(c).bits & UC_LOWER;
}

bool sentences_may_begin(uint32_t c)
{
    if (c < 0x80) return (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '$' || c == SENTENCE_GAP;
    if (is_upper(c)) return true;
    return !((c >= 0xDF && c <= 0x24F) || (c >= 0x370 && c <= 0x58F) || (c >= 0x1E00 && c <= 0x206F));
}

/* Bytes of the quotation mark or bracket at p, opening or closing; 0 for other characters. */
static size_t bracket_length(const char *p, const char *end, bool closing)
{
    if (p >= end) return 0;
    if (*p == '"' || *p == '\'') return 1;
    if (closing ? (*p == ')' || *p == ']') : (*p == '(' || *p == '[')) return 1;
    if (end - p >= 3 && memcmp(p, "\xe2\x80", 2) == 0) { /* ‘ ’ “ ” */
        unsigned char c = (unsigned char)p[2];
        if (closing ? c == 0x99 || c == 0x9d : c == 0x98 || c == 0x9c) return 3;
    }
    if (end - p >= 2 && p[0] == '\xc2' && p[1] == (closing ? '\xbb' : '\xab')) return 2; /* « » */
    return 0;
}

/* Bytes of another script's full stop at p, which always ends a sentence; 0 for other characters. */
static size_t other_stop(const char *p, const char *end)
{
    static const char *const stops[] = {"\xe3\x80\x82", "\xef\xbc\x81", "\xef\xbc\x9f",
                                        "\xe0\xa5\xa4", "\xd8\x9f",     "\xdb\x94"};
    for (size_t i = 0; i < sizeof stops / sizeof *stops; i++)
        if (str_begins(p, (size_t)(end - p), stops[i])) return strlen(stops[i]);
    return 0;
}

/* Whether the full stop after `word` ends the sentence that begins at `begin`, with `next` as the following word. */
static bool stop_ends(const char *begin, const char *word, const char *stop, const char *next, const char *end)
{
    char lower[8];
    size_t n = (size_t)(stop - word);
    const char *at = word;
    if (n == 0) return true;
    uint32_t first = utf8_decode(&at, stop);
    if (at == stop && (is_upper(first) || (first < 0x80 && isalpha((int)first)))) return is_starter(next, end); /* J. */
    bool digits = true, dotted = false;
    for (size_t i = 0; i < n; i++) {
        digits &= isdigit((unsigned char)word[i]) != 0;
        dotted |= i > 0 && word[i] == '.';
    }
    if (digits) return !(word == begin && n <= 3); /* "1. First of all" */
    if (n < sizeof lower) {
        for (size_t i = 0; i < n; i++) lower[i] = (char)tolower((unsigned char)word[i]);
        if (str_list_has(never_ends, ',', lower, n)) return false;
        if (str_list_has(ends_before_words, ',', lower, n)) return next < end && !isdigit((unsigned char)*next);
        if (str_list_has(may_end, ',', lower, n)) return is_starter(next, end);
    }
    if (dotted && n <= 12 && !isdigit((unsigned char)word[0])) return is_starter(next, end); /* U.S. */
    return true;
}

static bool has_letter(const char *p, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)p[i];
        if (isalpha(c) || (c >= 0xC3 && c != 0xE2)) return true; /* U+2000 … U+2FFF are signs */
    }
    return false;
}

size_t sentences_append_one(const char *text, size_t len, Buf *out)
{
    size_t count = 0;
    while (len > 0) {
        size_t n = len;
        if (n > SENTENCE_MOST) {
            for (n = SENTENCE_MOST; n > 0 && text[n] != ' ';) n--;
            if (n == 0) /* not even a space */
                for (n = SENTENCE_MOST; n > SENTENCE_MOST - 4 && ((unsigned char)text[n] & 0xC0) == 0x80;) n--;
        }
        if (has_letter(text, n)) {
            buf_append(out, text, n);
            buf_append(out, "\n", 1);
            count++;
        }
        text += n;
        len -= n;
        while (len > 0 && *text == ' ') text++, len--;
    }
    return count;
}

/* Bytes at which a boundary may lie. */
static const bool boundary[256] = {['.'] = true,  ['!'] = true,  ['?'] = true,  [0xE2] = true, [0xE3] = true,
                                   [0xEF] = true, [0xE0] = true, [0xD8] = true, [0xDB] = true};

size_t sentences_append(const char *text, size_t len, Buf *out)
{
    const char *end = text + len, *begin = text, *p = text;
    size_t count = 0;
    while (p < end) {
        while (p < end && !boundary[(unsigned char)*p]) p++;
        if (p == end) break;
        const char *stop = p;
        size_t n = other_stop(p, end), other = n;
        if (other) {
            p += n;
        } else {
            for (;; p += n) { /* "?!", "...", "…" */
                if (p < end && (*p == '.' || *p == '!' || *p == '?'))
                    n = 1;
                else if (end - p >= 3 && memcmp(p, "\xe2\x80\xa6", 3) == 0)
                    n = 3;
                else
                    break;
            }
            if (p == stop) { /* another character with such a first byte */
                p++;
                continue;
            }
        }
        bool single = *stop == '.' && p - stop == 1;
        while ((n = bracket_length(p, end, true)) > 0) p += n;
        if (p == end) break;
        if (!other && *p != ' ') continue;
        const char *after = p;
        while (after < end && *after == ' ') after++;
        const char *next = after;
        while ((n = bracket_length(next, end, false)) > 0) next += n;
        if (!other) {
            const char *at = next;
            if (next >= end || !sentences_may_begin(utf8_decode(&at, end))) continue;
            if (single) {
                const char *word = stop;
                while (word > begin && word[-1] != ' ' && word[-1] != '(' && word[-1] != '[' && word[-1] != '"' &&
                       stop - word < 32)
                    word--;
                if (!stop_ends(begin, word, stop, next, end)) continue;
            }
        }
        count += sentences_append_one(begin, (size_t)(p - begin), out);
        begin = p = after;
    }
    return count + sentences_append_one(begin, (size_t)(end - begin), out);
}
