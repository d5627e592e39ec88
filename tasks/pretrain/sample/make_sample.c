/* Writes the bundled sample of an encyclopedia: a MediaWiki dump about a country that does not exist, with the markup
   that real articles have. Ours from the first word to the last; the same bytes on every machine (Philox, fixed key, no
   locale, no clock).

   Use: make_sample FILE

   A model can learn from it. A region determines its river, language, crop, animal and stone, a trade its tools and
   works, an animal's kind its food and bed. So the context determines a masked word, also from another sentence of the
   article. An article keeps to one town, person or animal, so the next sentence differs from one of another article. */
#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/philox.h"

#define COUNT(list) ((int)(sizeof(list) / sizeof *(list)))
#define KEY         UINT64_C(0x656e6379636c6f)
#define N_TOWNS     110
#define N_PERSONS   100
#define N_ANIMALS   70

typedef struct {
    const char *name, *river, *language, *crop, *animal, *stone, *wind;
} Region;

static const Region regions[] = {
    {"Varn", "Orlin", "Varnish", "barley", "goat", "granite", "north"},
    {"Oss", "Tamsel", "Ossian", "rice", "llama", "clay", "south"},
    {"Keld", "Marr", "Keldic", "apple", "sheep", "slate", "west"},
    {"Dornia", "Silva", "Dornian", "grape", "horse", "marble", "east"},
    {"Lower Peth", "Ganna", "Pethish", "cotton", "camel", "sandstone", "desert"},
    {"Istria Minor", "Ulm", "Istric", "potato", "reindeer", "basalt", "polar"},
};

typedef struct {
    const char *name, *past, *work, *tool, *place, *prize;
} Trade;

static const Trade trades[] = {
    {"painter", "painted", "portrait", "brush", "studio", "Golden Frame"},
    {"composer", "composed", "sonata", "piano", "concert hall", "Silver Lyre"},
    {"astronomer", "discovered", "comet", "telescope", "observatory", "Star Medal"},
    {"architect", "designed", "bridge", "drawing board", "workshop", "Stone Arch"},
    {"poet", "wrote", "ballad", "pen", "library", "Laurel Leaf"},
    {"chemist", "found", "acid", "flask", "laboratory", "Blue Flame"},
};

typedef struct {
    const char *name, *food, *bed, *voice, *young, *move;
} Kind;

static const Kind kinds[] = {
    {"bird", "seeds", "nest", "sings", "chicks", "flies"},
    {"fish", "plankton", "reef", "is silent", "fry", "swims"},
    {"cat", "mice", "cave", "growls", "kittens", "climbs"},
    {"snake", "eggs", "burrow", "hisses", "hatchlings", "crawls"},
    {"deer", "grass", "thicket", "barks", "fawns", "leaps"},
};

static const char *const first_syllables[] = {"Bar", "Cal", "Dem", "El", "Fen", "Gor", "Hal", "Is",  "Jar", "Kor",
                                              "Lin", "Mor", "Nar", "Ol", "Per", "Ros", "Sal", "Tor", "Ul",  "Wen"};
static const char *const last_syllables[] = {"ba",  "dan", "el", "fold", "gar",  "in",  "ka", "low",
                                             "mar", "nor", "os", "rim",  "sted", "ten", "vik"};
static const char *const given_names[] = {"Ada",   "Bruno", "Clara", "Doran", "Edda",  "Falk",
                                          "Greta", "Hanno", "Ida",   "Jonas", "Karla", "Ludo"};
static const char *const months[] = {"January", "March", "May", "July", "September", "November"};

static uint32_t draws;
static uint32_t draw(uint32_t below) { return (uint32_t)((uint64_t)philox4(KEY, draws++, 0, 0, 0).v[0] * below >> 32); }
static uint32_t between(uint32_t low, uint32_t high) { return low + draw(high - low + 1); }

static FILE *out;
static int next_id = 1;

/* Text of the XML: & < > " are escaped, as MediaWiki does. */
static void put(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void put(const char *format, ...)
{
    char text[2048];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    for (const char *p = text; *p; p++) {
        switch (*p) {
        case '&':
            fputs("&amp;", out);
            break;
        case '<':
            fputs("&lt;", out);
            break;
        case '>':
            fputs("&gt;", out);
            break;
        case '"':
            fputs("&quot;", out);
            break;
        default:
            fputc(*p, out);
        }
    }
}

static void open_page(const char *title, int ns, const char *redirect)
{
    int id = next_id++;
    fprintf(out, "  <page>\n    <title>%s</title>\n    <ns>%d</ns>\n    <id>%d</id>\n", title, ns, id);
    if (redirect) fprintf(out, "    <redirect title=\"%s\" />\n", redirect);
    fprintf(out,
            "    <revision>\n      <id>%d</id>\n      <timestamp>2020-01-01T00:00:00Z</timestamp>\n"
            "      <contributor>\n        <username>Sample</username>\n        <id>1</id>\n      </contributor>\n"
            "      <model>wikitext</model>\n      <format>text/x-wiki</format>\n      <text xml:space=\"preserve\">",
            1000 + id);
}

static void close_page(void) { fputs("</text>\n    </revision>\n  </page>\n", out); }

/* The i-th name: no two are the same below 300. */
static const char *town_name(int i)
{
    static char names[4][32];
    static int at;
    char *name = names[at = (at + 1) % 4];
    snprintf(name, 32, "%s%s", first_syllables[i % COUNT(first_syllables)],
             last_syllables[(i / COUNT(first_syllables) + 7 * (i % COUNT(first_syllables))) % COUNT(last_syllables)]);
    return name;
}

static void put_reference(void)
{
    switch (draw(5)) {
    case 0:
        put("<ref>{{cite book |last=%s |title=The Lands of the %s |year=%u |page=%u}}</ref>", town_name((int)draw(200)),
            regions[draw(COUNT(regions))].river, between(1890, 1990), between(3, 300));
        break;
    case 1:
        put("<ref name=\"atlas\" />");
        break;
    case 2:
        put("{{citation needed|date=May 2019}}");
        break;
    default:
        break;
    }
}

static void put_town(int i)
{
    const Region *r = &regions[i % COUNT(regions)];
    const char *name = town_name(i);
    unsigned people = between(3, 90) * 100, height = between(20, 900), year = between(1100, 1700);
    open_page(name, 0, NULL);
    put("{{Short description|Town in %s}}\n{{Infobox settlement\n| name = %s\n| region = [[%s]]\n| population = "
        "{{formatnum:%u}}\n| elevation_m = %u\n}}\n",
        r->name, name, r->name, people, height);
    put("[[File:%s market.jpg|thumb|right|The market of [[%s]] in {{circa|%u}}]]\n", name, name, year + 200);
    put("'''%s''' is a town in the region of [[%s]].<ref name=\"atlas\">{{cite book |title=Atlas |page=%u}}</ref> ",
        name, r->name, between(1, 99));
    put("It lies on the river [[%s (river)|%s]], {{convert|%u|m|ft}} above the sea.", r->river, r->river, height);
    put_reference();
    put(" About %u&nbsp;people live there, and most of them speak [[%s language|%s]].\n\n", people, r->language,
        r->language);
    put("== History ==\n{{Main|History of %s}}\nThe town was founded in %u by %s from the banks of the %s. ", name,
        year, draw(2) ? "farmers" : "fishermen", r->river);
    put("Its old walls are made of %s, which is found everywhere in %s.", r->stone, r->name);
    put_reference();
    put(" In %u a fire burned down the %s, but the people of %s built it again.<!-- check the year -->\n\n",
        year + between(40, 200), draw(2) ? "town hall" : "church", name);
    if (draw(3) == 0)
        put("{| class=\"wikitable\"\n! Year !! People\n|-\n| %u || %u\n|-\n| %u || %u\n|}\n\n", year + 300, people / 2,
            year + 400, people);
    put("== Economy ==\nThe farmers of %s grow %s and keep %ss. ", name, r->crop, r->animal);
    put("In ''%s'' the %s is sold on the market, next to blocks of %s. ", months[draw(COUNT(months))], r->crop,
        r->stone);
    put("The %s wind blows in winter, so the houses have small windows.\n\n", r->wind);
    if (draw(2)) put("* [[%s]]\n* [[%s (river)|%s]]\n\n", r->name, r->river, r->river);
    put("== See also ==\n* [[List of towns in %s]]\n\n== References ==\n{{reflist}}\n\n[[Category:Towns in "
        "%s]]\n[[de:%s]]",
        r->name, r->name, name);
    close_page();
}

static void put_person(int i)
{
    const Trade *t = &trades[i % COUNT(trades)];
    const Region *r = &regions[draw(COUNT(regions))];
    char name[64];
    bool woman = i % 2 == 0;
    const char *he = woman ? "She" : "He", *his = woman ? "Her" : "His",
               *given = given_names[(2 * draw(6) + (woman ? 0 : 1)) % COUNT(given_names)];
    unsigned born = between(1780, 1930), age = between(40, 90);
    snprintf(name, sizeof name, "%s %s", given, town_name(130 + i));
    open_page(name, 0, NULL);
    put("{{Infobox person\n| name = %s\n| birth_date = {{birth date|%u|1|1}}\n| occupation = [[%s]]\n}}\n", name, born,
        t->name);
    put("'''%s''' ({{IPA|x}}; %u&ndash;%u) was a %s from [[%s]].", name, born, born + age, t->name, r->name);
    put_reference();
    put(" %s grew up on the %s and spoke %s at home. ", he, r->river, r->language);
    put("%s first %s was the ''%s %s'', which %s %s at the age of %u.\n\n", his, t->work,
        regions[draw(COUNT(regions))].name, t->work, woman ? "she" : "he", t->past, between(18, 35));
    put("===Life===\nDr. %s, %s teacher, gave %s a %s. ", town_name((int)draw(100)), woman ? "her" : "his",
        woman ? "her" : "him", t->tool);
    put("With this %s %s worked in the %s of %s for %u years.<ref>Letters, vol. %u, p. %u.</ref> ", t->tool,
        woman ? "she" : "he", t->place, town_name((int)draw(N_TOWNS)), between(3, 30), between(1, 9), between(10, 99));
    put("\"A %s needs a good %s\", %s used to say.\n\n", t->name, t->tool, woman ? "she" : "he");
    put("===Work===\n%s %s %u %ss in all. ", he, t->past, between(4, 60), t->work);
    put("The last %s won the [[%s]] in %u, the highest prize for a %s.", t->work, t->prize, born + age - 2, t->name);
    put_reference();
    put("\n* The %s in the %s of %s is the only one that can still be seen today.\n* ''%s no. %u'' (%u)\n\n", t->work,
        t->place, r->name, t->work, between(1, 9), born + 30);
    put("==External links==\n* [http://example.org/%d %s at the archive]\n{{Authority control}}\n[[Category:%ss]]", i,
        name, t->name);
    close_page();
}

static void put_animal(int i)
{
    const Kind *k = &kinds[i % COUNT(kinds)];
    const Region *r = &regions[draw(COUNT(regions))];
    char name[64];
    static const char *const coats[] = {"grey", "red", "spotted", "white", "black", "striped"};
    const char *coat = coats[draw(COUNT(coats))];
    snprintf(name, sizeof name, "%s %s", town_name(230 + i), k->name);
    open_page(name, 0, NULL);
    put("{{Taxobox\n| name = %s\n| image = %s.jpg\n| status = {{status|LC}}\n}}\n", name, name);
    put("The '''%s''' is a %s %s of [[%s]]. It eats %s and %s near the river [[%s (river)|%s]].", name, coat, k->name,
        r->name, k->food, k->move, r->river, r->river);
    put_reference();
    put("\n\n== Behaviour ==\nBy day the %s sleeps in its %s. At night it %s and looks for %s. When it is afraid, it "
        "%s.\n\n",
        k->name, k->bed, k->move, k->food, k->voice);
    put("The female has %u to %u %s in spring, which stay in the %s for %u weeks. ", between(1, 3), between(4, 9),
        k->young, k->bed, between(3, 12));
    put("The %s weigh only {{convert|%u|g|oz}} at first; they eat %s too.\n\n", k->young, between(20, 400), k->food);
    put("== People ==\nIn %s the %s is drawn on stones of %s &mdash; nobody knows why. A %s saying goes: \"Who hears a "
        "%s must not wait for the %s wind.\"\n",
        r->name, k->name, r->stone, r->language, k->name, r->wind);
    put("<gallery>\nFile:%s 1.jpg|A [[%s]]\nFile:%s 2.jpg|Its %s\n</gallery>\n[[Category:Animals of %s]]", name, name,
        name, k->bed, r->name);
    close_page();
}

static void put_header(void)
{
    fputs("<mediawiki xmlns=\"http://www.mediawiki.org/xml/export-0.10/\" version=\"0.10\" xml:lang=\"en\">\n  "
          "<siteinfo>\n"
          "    <sitename>Sample</sitename>\n    <dbname>sample</dbname>\n    <case>first-letter</case>\n    "
          "<namespaces>\n"
          "      <namespace key=\"-2\" case=\"first-letter\">Media</namespace>\n"
          "      <namespace key=\"0\" case=\"first-letter\" />\n"
          "      <namespace key=\"1\" case=\"first-letter\">Talk</namespace>\n"
          "      <namespace key=\"6\" case=\"first-letter\">File</namespace>\n"
          "      <namespace key=\"10\" case=\"first-letter\">Template</namespace>\n"
          "      <namespace key=\"14\" case=\"first-letter\">Category</namespace>\n    </namespaces>\n  </siteinfo>\n",
          out);
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "use: make_sample FILE\n");
        return 2;
    }
    out = fopen(argv[1], "wb");
    if (!out) {
        fprintf(stderr, "%s: %s\n", argv[1], strerror(errno));
        return 1;
    }
    draws = 0;
    next_id = 1;
    put_header();
    int town = 0, person = 0, animal = 0;
    while (town < N_TOWNS || person < N_PERSONS || animal < N_ANIMALS) {
        if (town < N_TOWNS) put_town(town++);
        if (person < N_PERSONS) put_person(person++);
        if (animal < N_ANIMALS) put_animal(animal++);
        if (town % 11 == 0 && town < N_TOWNS) {
            char title[64];
            snprintf(title, sizeof title, "Town of %s", town_name(town));
            open_page(title, 0, town_name(town));
            put("#REDIRECT [[%s]]", town_name(town));
            close_page();
        }
        if (town % 25 == 0 && town < N_TOWNS) {
            open_page("Talk:Sample", 1, NULL);
            put("Is this town real? ~~~~");
            close_page();
        }
    }
    fputs("</mediawiki>\n", out);
    if (fclose(out) != 0) {
        fprintf(stderr, "%s: %s\n", argv[1], strerror(errno));
        return 1;
    }
    return 0;
}
