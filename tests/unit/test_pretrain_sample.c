/* The bundled encyclopedia: its generator writes the committed file, which has the promised regularities: the context
   determines a masked word, and the article the next sentence. */
#include "wiki_testing.h"

int make_sample_main(int argc, char **argv);
#define main make_sample_main
#include "tasks/pretrain/sample/make_sample.c"
#undef main

static void the_generator_writes_the_committed_file(void **state)
{
    (void)state;
    Buf made = {0}, committed = {0};
    char *path = path_of("sample.xml");
    assert_int_equal(make_sample_main(2, (char *[]){"make_sample", path, NULL}), 0);
    assert_ok(file_read(path, 1 << 24, &made));
    assert_ok(file_read(SAMPLE, 1 << 24, &committed));
    assert_int_equal(made.len, committed.len);
    assert_memory_equal(made.data, committed.data, made.len);
    free(path);
    buf_free(&made);
    buf_free(&committed);
}

/* The share of articles with the first word that have the second one too. */
static void count(const char *text, const char *word, const char *other, int *both, int *with)
{
    *both = *with = 0;
    for (const char *p = text, *end; *p; p = end + 2) {
        end = strstr(p, "\n\n");
        char *article = mem_strndup(p, (size_t)(end - p));
        bool has = strstr(article, word) != NULL;
        *with += has;
        *both += has && strstr(article, other) != NULL;
        free(article);
    }
}

static void words_tell_words(void **state)
{
    (void)state;
    Buf text = {0};
    int both, with;
    if (!can_read_dumps()) skip();
    assert_ok(run_wiki(SAMPLE, (Settings){0}, NULL));
    read_parts("out", &text);
    for (int i = 0; i < COUNT(regions); i++) { /* towns: river and crop */
        char *river = mem_printf("the river %s,", regions[i].river), *crop = mem_printf("grow %s ", regions[i].crop);
        count(text.data, river, crop, &both, &with);
        assert_true(with >= 15 && both == with);
        free(river);
        free(crop);
    }
    for (int i = 0; i < COUNT(kinds); i++) {
        char *eats = mem_printf("It eats %s", kinds[i].food), *sleeps = mem_printf("in its %s.", kinds[i].bed);
        count(text.data, eats, sleeps, &both, &with);
        assert_true(with >= 10 && both == with);
        count(text.data, eats, "was a ", &both, &with);
        assert_int_equal(both, 0); /* no animal in an article about a person */
        free(eats);
        free(sleeps);
    }
    for (int i = 0; i < COUNT(trades); i++) {
        char *trade = mem_printf("was a %s from", trades[i].name),
             *prize = mem_printf("won the %s in", trades[i].prize);
        count(text.data, trade, prize, &both, &with);
        assert_true(with >= 10 && both == with);
        free(trade);
        free(prize);
    }
    buf_free(&text);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, make_folder, remove_folder)
    const struct CMUnitTest tests[] = {TEST(the_generator_writes_the_committed_file), TEST(words_tell_words)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
