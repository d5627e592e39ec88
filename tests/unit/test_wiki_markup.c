/* Wikitext to sentences: small cases by kind of markup, two pages with everything (tests/golden/wiki), and hostile
   nesting, which must take no longer than ordinary text. */
#include "testing.h"

#include "tasks/pretrain/wiki/page_xml.h"
#include "tasks/pretrain/wiki/wikitext.h"
#include "text/text.h"

static Wikitext *w;

static int make(void **state)
{
    (void)state;
    w = wikitext_new();
    return 0;
}

static int drop(void **state)
{
    (void)state;
    wikitext_free(w);
    return 0;
}

typedef struct {
    const char *markup, *text;
} Case;

static const Case cases[] = {
    /* emphasis, entities */
    {"'''Bold''' and ''italic'' and '''''both''''' and it's.", "Bold and italic and both and it's.\n"},
    {"A&nbsp;b &mdash; c &#8211; d &#x41; &lt;e&gt; &amp;amp; &bogus; & f.",
     "A b \xe2\x80\x94 c \xe2\x80\x93 d A <e> &amp; &bogus; & f.\n"},
    {"So\xc2\xadlid zero\xe2\x80\x8bwidth.", "Solid zerowidth.\n"},
    /* links */
    {"A [[link]], a [[page|word]], [[bus]]es, [[Page#Part|part]].", "A link, a word, buses, part.\n"},
    {"See [[#Part]] and [[:Category:Rivers]] and [[w:Page|that]].", "See Part and Rivers and that.\n"},
    {"[[File:A.jpg|thumb|A [[nested|link]] and [http://x.org y].]]Text [[Image:b.png]] here.", "Text here.\n"},
    {"Text.[[Category:A|b]]\n[[fr:Titre]]\n[[zh-yue:\xe5\xad\x97]]", "Text.\n"},
    {"The [[CSI: Miami]] show and [[doi:10.1/2]] and [[Foo (bar)|]].",
     "The CSI: Miami show and doi:10.1/2 and Foo (bar).\n"},
    {"At [http://a.org the site], [https://b.org], [//c.org d ''e''] and [sic].", "At the site, d e and [sic].\n"},
    {"A [[target with\na line end|b]] c.", "A target with a line end|b c.\n"},
    /* templates */
    {"It{{test|{{u|x}}|y={{{1|z}}}}} is.", "It is.\n"},
    {"It is {{convert|5|km|mi}} by {{lang|fr|le ''mot''}} and {{nowrap|a [[b]]}}.", "It is 5 km by le mot and a b.\n"},
    {"{{lang|fr|{{nowrap|deep}}}} and {{Frac|1|2}} and {{abbr|UK|United Kingdom}}.", "deep and 1/2 and UK.\n"},
    {"A{{snd}}b{{'}}s{{unknown|c}} d.", "A \xe2\x80\x93 b's d.\n"},
    {"Name ({{unknown|x}}; {{lang-xx|mot}}) is ( , a) name () .", "Name (mot) is (a) name.\n"},
    {"A vowel, such as {{IPA|/a/}}, or {{IPAslink|x}}.", "A vowel, such as /a/, or /x/.\n"},
    {"At {{convert|50|to|150|C|F}}, {{convert|70.0|by|71.2|nmi|km}}, {{cvt|3|-|4|m}}, {{convert|5|km}}.",
     "At 50 to 150 \xc2\xb0"
     "C, 70.0 by 71.2 nmi, 3\xe2\x80\x93"
     "4 m, 5 km.\n"},
    {"A {{chem|H|2|O}} and {{Nihongo|bayonet|x|y}} with {{key press|Ctrl}}.", "A H2O and bayonet with Ctrl.\n"},
    {"One is. Ions such as {{z|a}}, and b. Two by {{z}}{{y}}. It is {{z}} small.[[A]] c.", "One is.\n"},
    {"It has {{formatnum:1234567}} seats. It has {{formatnum: {{z}}|R}}of it.", "It has 1234567 seats.\n"},
    {"At {{val|9.1|(28)|e=-31|ul=kg}} or {{val|5|u=km|up=h}}, so.", "At 9.1(28)\xc3\x97"
                                                                    "10^-31 kg or 5 km/h, so.\n"},
    {"He is {{height|ft=6|in=1}}, {{Height|m=1.85|precision=0}} tall.", "He is 6 ft 1 in, 1.85 m tall.\n"},
    {"Cairn ({{IPAc-en|lang|\xcb\x88|k|\xc9\x9b\xc9\x99r|n|,_|x|En-us-Cairn.ogg}}; {{IPAc-en|pron}}) is.",
     "Cairn (/\xcb\x88k\xc9\x9b\xc9\x99rn, x/) is.\n"},
    {"It opened on {{start date|1976|04|01|df=y}}, {{Start date|1976|4|1}}, {{end date|1976|5}}, {{film date|1976}}, "
     "{{start-date|7 May 1976}}.",
     "It opened on 1 April 1976, April 1, 1976, May 1976, 1976, 7 May 1976.\n"},
    {"Only such as {{z}}.", ""},
    {"The {{z}} end of {{convert}}, yes. Well {{citation needed}}.", "Well.\n"},
    {"[[L\xc3\xaa"
     "er:A.jpg|thumb|Words]][[Foo:Bar.PNG]]Text at [[Foo: Bar.png x]].",
     "Text at Foo: Bar.png x.\n"},
    {"{{Infobox\n| a = b\n}}\nText.", "Text.\n"},
    {"{{{x|}}} Text.{{#if:a|b|c}}", "Text.\n"},
    /* A removed template leaves a gap or not, depending on its place. */
    {"Il est né le {{date|1}} à Paris.", ""},
    {"Il est né le {{date|1}}, à Paris. Il est mort.", "Il est mort.\n"},
    {"Il est mort en {{date|1}}. Il est né.", "Il est né.\n"},
    {"Er lebte bis {{Datum}}", ""},
    {"C'est le {{1er}} janvier.", ""},
    {"彼は{{date}}に生まれた。", ""},
    {"彼は東京に生まれた{{要出典}}。次の文。", "彼は東京に生まれた。\n次の文。\n"},
    {"La ville{{réf}} est grande.{{réf}} Elle est là{{réf}}, {{réf|x}}.", "La ville est grande.\n"},
    {"La ville{{réf}} est grande.{{réf}} Elle est là{{réf}}, oui{{réf}}.", "La ville est grande.\nElle est là, oui.\n"},
    {"It{{sfn|x|1990}} is {{citation needed|date=x}} big{{cn}} in 1990{{efn|x}} {{fr icon}}.", "It is big in 1990.\n"},
    {"It is 3.5{{x}} big. It is −{{x}}.", ""},
    {"The A ({{x}}; born, {{x}}) is ({{x}}).", "The A (born) is.\n"},
    {"The A (French: {{x}}) is big. The A (from {{x}}, B) is.", ""},
    {"He said \"{{x}}\" twice. He said \"so\"{{x}} twice.", "He said \"so\" twice.\n"},
    {"In{{x}}Paris. It is 'so{{' \"}} It was.", "It is 'so'\" It was.\n"},
    {"Au XIX{{exp|e}} siècle. François I{{er}} est roi. M{{me}} A est là. Le n{{o}} 5 est là. Il a 12 km{{2}} en tout.",
     ""},
    {"Es el 1.{{er}} rey. L'{{x|y}} è. L’{{x|y}} va. Ende.{{x|y}} Da.", "Ende.\nDa.\n"},
    {"彼は（{{x}}）に。「{{x}}」と。2000年〜{{x}}に。価は￥{{x}}。「森」{{要出典}}は。", ""},
    {"{{x}}の首都。", ""},
    {"{{仮リンク|x}}、日本。{{x}}。文。{{x|y}} 次。\n{{x}}\n日。", "文。\n次。\n日。\n"},
    {"{{x}} की राजधानी। वह{{xxxx}} है। {{x}} है।{{x|y}} वह है।", "वह है।\nवह है।\n"},
    {"{{x}} is big. {{x}} It is. {{x}}, or is. It was.", "It is.\nIt was.\n"},
    {"{{x}}\n{{y}}\nipod is big.\n{{z}}\nIt is:\n{{z}}\nnot small.", "ipod is big.\nIt is: not small.\n"},
    {"Born in\n{{x}}\nin Paris.", ""},
    {"Born in\n{{x}}\n\nBorn so\n{{x}}\nA town.", "Born in\nBorn so A town.\n"},
    {"The {{nowrap|{{x}}}} is. The [[a|{{x}}]] is. The ''{{x}}'' is. The {{x}}'s is. It is {{{1}}}. It is {{#if:a|b}} "
     "so. It was.",
     "It was.\n"},
    {"A, {{x}}, and B are. It is – {{x}} – big. It was.", "It was.\n"},
    {"It is <source>x</source> now. It is <ce>H2O</ce>. It was.\n<source>x</source>\nIt is.", "It was.\nIt is.\n"},
    {"It is {{spaces|2}} big{{nbsp}}now.", "It is big now.\n"},
    {"* {{flagicon|X}} A has seven words in it, and ends.{{x}}\n* {{x}} has seven words or more in it.",
     "A has seven words in it, and ends.\n"},
    {"See 10<sup>6</sup>, 10<sup>&minus;6</sup>, 10{{sup|−6}}, 101<sub>2</sub>, m<sup>2</sup>, H{{sub|2}}O, "
     "1<sup>st</sup>.",
     "See 10^6, 10^−6, 10^−6, 101_2, m2, H2O, 1st.\n"},
    {"See 10<sup>−{{frac|1|2}}</sup>, 10<sup>{{val|5}}</sup>, 10<sup>''n''</sup>, 10<sup>{{x}}</sup>.", ""},
    {"See 10<sup>−{{frac|1|2}}</sup>, 10<sup>{{val|5}}</sup>, 10<sup>''n''</sup>.", "See 10^−1/2, 10^5, 10^n.\n"},
    {"See xyz{{su|p=2}}. See km{{exp|2}}. See so{{odn|x}}.", "See so.\n"},
    {"See 2<sup>1</sup>/<sub>2</sub>, 2<sup>3</sup>&frasl;<sub>4</sub>, 5{{frac|1|2}}, {{sup|1}}/{{sub|2}}.",
     "See 2 1/2, 2 3⁄4, 5 1/2, 1/2.\n"},
    /* references and other extensions */
    {"A<ref>b {{cite|c}} [[d]]</ref> e<ref name=\"f\" /> g<ref name=h>i</ref>.", "A e g.\n"},
    {"At.<ref>\nb\n* c\n</ref> Do.", "At.\nDo.\n"},
    {"A <!-- b\n\n== c == --> d.", "A d.\n"},
    {"A <nowiki>[[b]] &lt; ''c''</nowiki> d<nowiki/>e.", "A [[b]] < ''c'' de.\n"},
    {"Let <math>x + 1</math> be <math>\\sqrt{2}</math>.", "Let x + 1 be formula.\n"},
    {"It<syntaxhighlight lang=\"c\">int [[x]];</syntaxhighlight> is.\n<source>c</source>", "It is.\n"},
    {"<gallery>\nFile:A.jpg|b [[c]]\n</gallery>\nText.", "Text.\n"},
    {"<poem>\nA line.\nAnother line.\n</poem>", "A line.\nAnother line.\n"},
    {"A<br />b<br>c <span class=\"x\">d</span> <div>e.</div> f<sup>2</sup>.", "A b c d\ne.\nf2.\n"},
    /* a > within quotes does not end a tag; quotes that are not a value's, or never closed, are characters */
    {"A<br style=\"w > x\" /> b<ref name=\"y > z\" /> c <span title='u > \"v'>d</span> <small class = "
     "\"s>t\">e</small>.",
     "A b c d e.\n"},
    {"A <ref group=\"a>b\" name='c>'>d</ref>e <math display=\"a > b\">x</math> <nowiki a='>'>[[f]]</nowiki>.",
     "A e x [[f]].\n"},
    {"A <span lang=\"a>b\"title=\"c>d\">e</span> <span title=\"f>g</span> and \"h\" or 'i' <b id=j>k</b>.",
     "A e g and \"h\" or 'i' k.\n"},
    {"A <ref name=O'Brien>b</ref>c <ref name=\"d>e</ref>f <ref name=\"g\">h</ref>i <ref name=j \"k>l</ref>.",
     "A c f i.\n"},
    {"A <b title=\"c\nd > e\">f</b> <!-- \"g -->h\".", "A f h\".\n"},
    {"If a < b and c > d, <foo>e</foo>.", "If a < b and c > d, <foo>e</foo>.\n"},
    {"A -{zh-hans:b; zh-hant:c}- -{d}- -{H|e}- f.", "A b d f.\n"},
    {"__NOTOC__ A__b __FORCETOC__ c_d.", "A__b c_d.\n"},
    /* tables */
    {"A.\n{| class=\"x\"\n|-\n| b || c\n{|\n| d\n|}\n|}\nE.", "A.\nE.\n"},
    {"A <table><tr><td>b<table><tr><td>c</td></tr></table></td></tr></table> d.", "A\nd.\n"},
    {"{{t|a={|\n| b\n|}\n|}}C.", "C.\n"},
    {":{|\n| a\n|}\nB.", "B.\n"},
    /* structure */
    {"A b\nc d.\n\nE f", "A b c d.\nE f\n"},
    {"A b\n== H ==\nc d", "A b\nc d\n"},
    {"A.\n== H == <!-- x -->\nB.\n=== I ===\nC.\n=no heading", "A.\nB.\nC. =no heading\n"},
    {"* a\n* b\n# c\n* This item is a sentence of its own, with enough words.\nText.",
     "This item is a sentence of its own, with enough words.\nText.\n"},
    {"A.\n== See also ==\n* b\nC is left out.\n=== D ===\nE too.\n== F ==\nG.", "A.\nG.\n"},
    {"A.\n----\nB.\n code line\nC.", "A.\nB.\nC.\n"},
    {"{{a}}<!-- b -->\n{{c}} Text.\n{{d}}\nMore.", "Text.\nMore.\n"},
    /* constructs that are never closed */
    {"A {{b c.\n\nD.", "A b c.\nD.\n"},
    {"A [[b c. D]] e]] f.", "A b c. D e f.\n"},
    {"A <ref>b. C <ref>d</ref> e.", "A b. C e.\n"},
    {"A <!-- b. C", "A\n"},
    {"{| a\n| b\nC.\n! d\nE.", "C.\nE.\n"},
    {"A }} b |} c ]] d.", "A b | c d.\n"},
    {"{{{{{{{{[[[[[[[[", ""},
    {"[[", ""},
    {"", ""},
    {"\n\n\n", ""},
    {"&", ""},
    {"<", ""},
    {"a<ref", "a\n"},
    {"A -{1<sup}->", "A 1>\n"},
    {"= b -->", "= b -->\n"},
};

/* A template in the middle of a sentence, and what it becomes there; NULL: the sentence is left out. */
static const Case numbers[] = {
    {"convert|5|km|mi", "5 km"},
    {"Convert|5|km|mi|0|abbr=on|lk=on|sp=us|sigfig=3|spell=in", "5 km"},
    {"convert|5|km|0", "5 km"},
    {"convert| 1,234.5 | km | mi nmi", "1,234.5 km"},
    {"convert|−5|km", "−5 km"},
    {"convert|6|ft|4|in|cm|0", "6 ft 4 in"},
    {"convert|7|lb|8|oz|kg", "7 lb 8 oz"},
    {"convert|11|st|3|lb|8|oz", "11 st 3 lb 8 oz"},
    {"convert|1|mi|440|yd", "1 mi 440 yd"},
    {"convert|2|hr|30|min", "2 hr 30 min"},
    {"convert|6|ft|4|foo|cm", NULL},
    {"convert|6|ft|to|7|ft|m", NULL},
    {"convert|5|6|km", NULL},
    {"convert|3|to|6|ft", "3 to 6 ft"},
    {"convert|3|to(-)|6|ft|m", "3 to 6 ft"},
    {"convert|3|to about|6|ft", "3 to about 6 ft"},
    {"convert|3|-|6|ft", "3–6 ft"},
    {"convert|3|–|6|ft", "3–6 ft"},
    {"convert|3|&ndash;|6|ft", "3–6 ft"},
    {"convert|3|and|6|ft", "3 and 6 ft"},
    {"convert|3|and(-)|6|ft", "3 and 6 ft"},
    {"convert|3|or|6|ft", "3 or 6 ft"},
    {"convert|3|, or|6|ft", "3, or 6 ft"},
    {"convert|3|,|4|, and|6|ft", "3, 4, and 6 ft"},
    {"convert|3|by|6|ft", "3 by 6 ft"},
    {"convert|3|x|6|ft", "3 by 6 ft"},
    {"convert|3|x|6|ft|abbr=on", "3 ft × 6 ft"},
    {"cvt|2|x|3|e6acre", "2 × 3 million acre"},
    {"cvt|2|×|3|&times;|4|m", "2 m × 3 m × 4 m"},
    {"convert|3|±|6|ft", "3 ± 6 ft"},
    {"convert|3|+/-|6|ft", "3 ± 6 ft"},
    {"convert|3|&plusmn;|6|ft", "3 ± 6 ft"},
    {"convert|3|to(–)|6|ft", NULL},
    {"convert|5+1/2|in", "5 1/2 in"},
    {"convert|1/2|in", "1/2 in"},
    {"convert|-1+5//8|in", "-1 5/8 in"},
    {"convert|1.5e6|km", "1.5×10^6 km"},
    {"convert|five|km", NULL},
    {"convert|{{frac|1|2}}|in", NULL},
    {"convert||km", NULL},
    {"convert|5", NULL},
    {"convert", NULL},
    {"convert|input=P2048|ft", NULL},
    {"convert|20|C|F", "20 °C"},
    {"convert|90|°F", "90 °F"},
    {"convert|10|C-change", "10 °C"},
    {"convert|22|e6acre|km2", "22 million acre"},
    {"convert|3|e3m3", "3 thousand m3"},
    {"convert|22|e5acre", NULL},
    {"convert|5|$/mi", NULL},
    {"convert|5|PD/sqmi", "5 inhabitants per sqmi"},
    {"convert|5|/sqmi", "5 per sqmi"},
    {"convert|5|[[km]]", NULL},
    {"convert|5|km|mi|order=flip", "5 km"},
    {"convert|5|km|mi|disp=or", "5 km"},
    {"convert|5|km|mi|disp=flip", "5 km"},
    {"convert|5|km|mi|order=out", NULL},
    {"convert|5|km|mi|disp=output only", NULL},
    {"convert|5|km|mi|disp=number", NULL},
    {"convert|5|km|mi|disp=unit", NULL},
    {"convert|5|km|mi|disp=preunit|x", NULL},
    {"convert|5|km|mi|abbr=values", NULL},
    {"convert|5|km|mi|adj=on", "5 km"},
    {"convert|5|km|mi|adj=mid|-long", "5 km-long"},
    {"convert|5|km|mi|0|adj=mid|-long", "5 km-long"},
    {"convert|5|km|mi|adj=pre|long", NULL},
    {"convert|5|km|mi|adj=ri0", NULL},
    {"frac|3", "1/3"},
    {"frac|3|4", "3/4"},
    {"frac|5|3|4", "5 3/4"},
    {"sfrac|-3|4", "-3/4"},
    {"sfrac|3''n'' + 1|2", "(3n + 1)/2"},
    {"frac", NULL},
    {"frac|1|2|3|4", NULL},
    {"frac|{{pi}}|2", NULL},
    {"val|5", "5"},
    {"val|5|u=km|up=h", "5 km/h"},
    {"val|5|ul=%", "5%"},
    {"val|5|(2)|e=-6|u=kg", "5(2)×10^-6 kg"},
    {"val|5|0.2", "5±0.2"},
    {"val|5|0.2|0.3", "5+0.2−0.3"},
    {"val|5|0.2|e=6", "(5±0.2)×10^6"},
    {"val|5|-|7|u=m", "5–7 m"},
    {"val|5|x|7|u=m", "5 × 7 m"},
    {"val|e=6", "10^6"},
    {"val|p=~|5", "~5"},
    {"val|5|x", NULL},
    {"val|5|+0.1|-0.2", NULL},
    {"val|5|0.1|-0.2", NULL},
    {"val|-5e6", "-5×10^6"},
    {"val|5.1(2)", "5.1(2)"},
    {"val|5|s=x", NULL},
    {"val|x", NULL},
    {"val|5|u=m<sup>2</sup>", NULL},
    {"val", NULL},
    {"e|6", "×10^6"},
    {"num|1234", "1234"},
    {"formatnum:1234.5", "1234.5"},
    {"circa|1900", "c. 1900"},
    {"c.|1900|1950|lk=y", "c. 1900 – c. 1950"},
    {"circa", "c."},
    {"as of|2009", "As of 2009"},
    {"As of|2009|lc=y", "as of 2009"},
    {"as of|2009|4", "As of April 2009"},
    {"as of|2009|April|05", "As of 5 April 2009"},
    {"as of|2009|4|5|df=US|since=y", "Since April 5, 2009"},
    {"as of|2009|4|bare=y", "April 2009"},
    {"as of|2009|alt=in 2009", "in 2009"},
    {"as of|2009|pre=early", NULL},
    {"birth date|1976|04|01", "April 1, 1976"},
    {"birth date|1976|4|1|df=y", "1 April 1976"},
    {"death date and age|mf=yes|1976|4|1|1900|1|1", "April 1, 1976"},
    {"end date|1976", "1976"},
    {"start date|1976|4|1|14|30", NULL},
    {"film date|1976|4|1|Rome|1977|5|2", NULL},
    {"birth date|384|1|1|bc=y", NULL},
    {"birth date|1976|13|1", NULL},
    {"birth date|{{x}}", NULL},
    {"height|m=1.85", "1.85 m"},
    {"height|ft=x", NULL},
    {"track gauge|1435mm", "1435mm"},
    {"track gauge|ussg", NULL},
    {"us$|5|year=2000", "US$5"},
    {"€|5 million", "€5 million"},
    {"inr", "₹"},
    {"us$|{{x}}5", NULL},
    {"chem|H|2|SO|4", "H2SO4"},
    {"chem|H|2|{{x}}", NULL},
    {"keypress|Ctrl|C", "Ctrl+C"},
    {"respell|RIV|ər", "RIV-ər"},
    {"not a typo|wo|rd", "word"},
    {"sic|''teh''", "teh"},
    {"transl|ru|mot", "mot"},
    {"transl|ar|ALA|mot", "mot"},
    {"lang|fr|''mot''", "mot"},
    {"lang|fr", NULL},
    {"lang|fr|", NULL},
    {"IPA-fr|mo", "[mo]"},
};

static void templates_of_numbers(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        Buf out = {0};
        char *markup = mem_printf("It is {{%s}} there.", numbers[i].markup),
             *text = numbers[i].text ? mem_printf("It is %s there.\n", numbers[i].text) : mem_strdup("");
        buf_puts(&out, "");
        wikitext_sentences(w, markup, strlen(markup), &out);
        if (strcmp(out.data, text) != 0) fail_msg("\"%s\" became\n%s\ninstead of\n%s", markup, out.data, text);
        assert_int_equal(wikitext_dropped(w), numbers[i].text == NULL);
        free(markup);
        free(text);
        buf_free(&out);
    }
}

static void cases_by_kind(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Buf out = {0};
        buf_puts(&out, "");
        /* A copy of exact size, so that sanitizers detect reads beyond its end. */
        size_t len = strlen(cases[i].markup);
        char *copy = malloc(len ? len : 1);
        memcpy(copy, cases[i].markup, len);
        wikitext_sentences(w, copy, len, &out);
        if (strcmp(out.data, cases[i].text) != 0)
            fail_msg("\"%s\" became\n%s\ninstead of\n%s", cases[i].markup, out.data, cases[i].text);
        free(copy);
        buf_free(&out);
    }
}

static void whole_pages(void **state)
{
    (void)state;
    static const char *const pages[] = {"river", "broken"};
    for (size_t i = 0; i < 2; i++) {
        Buf markup = {0}, expected = {0}, out = {0};
        char *from = mem_printf("tests/golden/wiki/%s.wiki", pages[i]),
             *to = mem_printf("tests/golden/wiki/%s.txt", pages[i]);
        assert_ok(file_read(from, 1 << 20, &markup));
        assert_ok(file_read(to, 1 << 20, &expected));
        wikitext_sentences(w, markup.data, markup.len, &out);
        assert_string_equal(out.data, expected.data);
        buf_free(&markup);
        buf_free(&expected);
        buf_free(&out);
        free(from);
        free(to);
    }
}

static void other_languages(void **state)
{
    (void)state;
    static const char text[] = "[[Soubor:A.jpg|thumb|b]][[Rubrik:C]]D.";
    Buf out = {0};
    wikitext_set_namespaces(w, "soubor,rubrik,");
    wikitext_sentences(w, text, strlen(text), &out);
    assert_string_equal(out.data, "D.\n");
    wikitext_set_namespaces(w, NULL);
    buf_free(&out);
}

/* Any mix of brackets: the output is lines of UTF-8, not longer than the input, after milliseconds; a quadratic cleaner
   would need minutes for a MiB, which a deep test has; a quarter of it shows as much. */
static void hostile_nesting(void **state)
{
    (void)state;
    static const char *const pieces[] = {"{{",
                                         "[[",
                                         "{|\n",
                                         "<ref>",
                                         "<nowiki>",
                                         "<b",
                                         "<!--",
                                         "-{",
                                         "[[a|",
                                         "{{lang|",
                                         "{{lang|a=[[b]]|",
                                         "[http://a.b ",
                                         "''",
                                         "{{{",
                                         "[[a]]",
                                         "</ref",
                                         "<ref name=",
                                         "|}\n",
                                         "}}",
                                         "]]",
                                         "<table>",
                                         "== a ==\n",
                                         "[[File:a|",
                                         "{{lang|a|",
                                         "<b a='",
                                         "=\" ",
                                         "{{cvt|1|x|1|x|1|x|1|x|1|x|1|x|1|x|1|x|1|x|1|mmm}}",
                                         "<b a=\"b\"c='d>"};
    const bool deep = testing_deep();
    const size_t most = (size_t)1 << (deep ? 20 : 18);
    const double limit = deep ? 5 : 1;
    double slowest = 0;
    size_t worst[2] = {0};
    Buf text = {0}, out = {0};
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) {
        for (size_t k = 0; k < sizeof pieces / sizeof *pieces; k++) {
            if (i != k && (i + 3 * k) % 4 != 0) continue; /* some of the pairs, and each alone */
            text.len = out.len = 0;
            while (text.len < most) {
                buf_puts(&text, pieces[i]);
                if (i != k) buf_puts(&text, pieces[k]);
            }
            double start = clock_thread();
            wikitext_sentences(w, text.data, text.len, &out);
            double seconds = clock_thread() - start;
            if (seconds > slowest) {
                slowest = seconds;
                worst[0] = i;
                worst[1] = k;
            }
            if (seconds > limit) fail_msg("\"%s%s…\": %.1f s", pieces[i], pieces[k], seconds);
            assert_true(out.len <= 2 * text.len + 1);
            assert_true(text_utf8_error(out.data ? out.data : "", out.len) < 0);
        }
    }
    print_message("slowest of the brackets: %.3f s, of \"%s%s\"\n", slowest, pieces[worst[0]], pieces[worst[1]]);
    buf_free(&text);
    buf_free(&out);
}

static void mixed_up_markup(void **state)
{
    (void)state;
    Buf markup = {0}, text = {0}, out = {0};
    uint64_t random = 7;
    assert_ok(file_read("tests/golden/wiki/river.wiki", 1 << 20, &markup));
    for (int round = 0; round < 2000; round++) {
        text.len = out.len = 0;
        while (text.len < 600) { /* pieces of a page */
            size_t at = testing_random(&random) % markup.len, n = testing_random(&random) % 40;
            if (at + n > markup.len) n = markup.len - at;
            buf_append(&text, markup.data + at, n);
        }
        while (text.len > 0 && text_utf8_error(text.data, text.len) >= 0) { /* the cleaner requires UTF-8 */
            size_t bad = (size_t)text_utf8_error(text.data, text.len);
            text.data[bad] = '?';
        }
        char *copy = malloc(text.len);
        memcpy(copy, text.data, text.len);
        size_t n = wikitext_sentences(w, copy, text.len, &out), lines = 0;
        for (size_t i = 0; i < out.len; i++) lines += out.data[i] == '\n';
        assert_int_equal(n, lines);
        assert_true(text_utf8_error(out.data ? out.data : "", out.len) < 0);
        free(copy);
    }
    buf_free(&markup);
    buf_free(&text);
    buf_free(&out);
}

static void pages_of_xml(void **state)
{
    (void)state;
    PageParser *parser;
    Page page = {0};
    Namespaces names = {0};
    size_t at = 0;
    if (page_parser_open(&parser) != OK) {
        print_message("skipped: %s\n", status_message());
        skip();
    }
#define PARSE(xml) page_parse(parser, xml, strlen(xml), &names, &page, &at)
    assert_ok(PARSE("<page><title>A &amp; B</title><ns>0</ns><id>1</id><revision><id>2</id><comment>x</comment>"
                    "<text xml:space=\"preserve\">One &lt;b&gt; &#233;</text></revision></page>"));
    assert_string_equal(page.title.data, "A & B");
    assert_string_equal(page.text.data, "One <b> \xc3\xa9");
    assert_false(page.other || page.redirect);
    assert_ok(PARSE("<page><title>T</title><ns>1</ns><revision><text>x</text></revision></page>"));
    assert_true(page.other);
    assert_ok(
        PARSE("<page><title>T</title><ns>0</ns><redirect title=\"x\" /><revision><text>x</text></revision></page>"));
    assert_true(page.redirect);
    assert_ok(PARSE("<page><title>T</title><ns>0</ns><revision><text> #redirect [[x]]</text></revision></page>"));
    assert_true(page.redirect);
    assert_ok(PARSE(
        "<page><title>T</title><revision><text>old</text></revision><revision><text>new</text></revision></page>"));
    assert_string_equal(page.text.data, "new");
    assert_ok(PARSE("<page><title>T</title><ns>0</ns><revision><text deleted=\"deleted\" /></revision></page>"));
    assert_int_equal(page.text.len, 0);
    static const char *const bad[] = {"<page><title>T</page>",
                                      "<page><title>\xff</title></page>",
                                      "<page>&bogus;</page>",
                                      "<page>\x01</page>",
                                      "<page>",
                                      "",
                                      "<!DOCTYPE a [<!ENTITY b \"c\">]><page>&b;</page>"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_status(PARSE(bad[i]), E_FORMAT);
        assert_true(at <= strlen(bad[i]));
    }
    /* Without <ns> (schema 0.3 to 0.5) the title's prefix decides, by the header's names or else by English ones. */
    static const char header[] =
        "<mediawiki><siteinfo><namespaces><namespace key=\"6\">Datei</namespace><namespace key=\"0\" />"
        "<namespace key=\"14\" case=\"x\">Kategorie</namespace><namespace key=\"1\">Q&amp;A D</namespace>";
    static const struct {
        const char *title;
        bool given, usual; /* another namespace by the header, by English names */
    } titles[] = {{"River", false, false},      {"2001: A Walk", false, false},   {"Datei:A.jpg", true, false},
                  {"datei:A.jpg", true, false}, {"Q&amp;A D:River", true, false}, {"Talk:River", false, true},
                  {"User talk:A", false, true}, {"A,Talk:B", false, false},       {":A", false, false}};
    for (int given = 0; given < 2; given++) {
        names = (Namespaces){0};
        page_parse_header(parser, given ? header : "", given ? strlen(header) : 0, &names);
        assert_int_equal(names.given, given);
        assert_string_equal(names.links.data, given ? "datei,kategorie," : "");
        for (size_t i = 0; i < sizeof titles / sizeof *titles; i++) {
            char *xml = mem_printf("<page><title>%s</title><id>1</id><revision><text>x</text></revision></page>",
                                   titles[i].title);
            assert_ok(PARSE(xml));
            assert_int_equal(page.other, given ? titles[i].given : titles[i].usual);
            free(xml);
        }
        assert_ok(PARSE("<page><title>Datei:A</title><ns>0</ns><revision><text>x</text></revision></page>"));
        assert_false(page.other);
        assert_ok(PARSE("<page><title>A</title><revision><text>#\u0430\u0430\u0430: [[x]]</text></revision></page>"));
        assert_true(page.redirect);
        assert_ok(PARSE("<page><title>A</title><revision><text># [[x]] is.</text></revision></page>"));
        assert_false(page.redirect);
        assert_ok(PARSE("<page><title>A</title><ns>0</ns><revision><text>#ABC [[x]]</text></revision></page>"));
        assert_false(page.redirect);
        namespaces_free(&names);
    }
    page_free(&page);
    page_parser_close(parser);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cases_by_kind),   cmocka_unit_test(templates_of_numbers), cmocka_unit_test(whole_pages),
        cmocka_unit_test(other_languages), cmocka_unit_test(hostile_nesting),      cmocka_unit_test(mixed_up_markup),
        cmocka_unit_test(pages_of_xml),
    };
    return cmocka_run_group_tests(tests, make, drop);
}
