/* Labels as tables have them: vectors of 0 and 1, words for missing values, blanks, arrays; from the data and given. */
#include "testing.h"

#include "tasks/glue/custom.h"

/* Reads `text` as train's file with --labels (NULL: those of the data). Appends to `out` the labels, then each row's,
   as "a,b: a|b|a": with --multi-label "a+b". A refusal is appended as its message without the folder. */
static void read_labels(const char *ending, const char *text, const char *labels, bool multi, Buf *out)
{
    char *dir = testing_directory(), *name = mem_printf("train.%s", ending), *path = file_join(dir, name);
    GlueCustom c;
    GlueExamples x = {0};
    Status status = OK;
    out->len = 0;
    buf_puts(out, "");
    assert_ok(file_write_durable(path, text, strlen(text)));
    assert_ok(glue_custom_init(&c, "t", "l", labels ? labels : "", multi));
    if (!labels) status = glue_custom_labels_of_data(&c, dir, "");
    if (status == OK) status = glue_read(&x, dir, &c.task, &c.task.splits[0]);
    if (status == OK) {
        for (int i = 0; i < c.task.n_labels && !c.task.regression; i++)
            buf_printf(out, "%s%s", i ? "," : "", c.task.labels[i]);
        for (size_t i = 0; i < x.count; i++) {
            buf_puts(out, i ? "|" : ": ");
            if (!x.examples[i].targets && !c.task.regression) buf_puts(out, c.task.labels[x.examples[i].label]);
            if (c.task.regression) buf_printf(out, "%g", (double)x.examples[i].score);
            for (int k = 0, n = 0; x.examples[i].targets && k < c.task.n_labels; k++)
                if (x.examples[i].targets[k] > 0) buf_printf(out, "%s%s", n++ ? "+" : "", c.task.labels[k]);
        }
        glue_examples_free(&x);
    } else {
        assert_status(status, E_FORMAT);
        const char *message = strstr(status_message(), name);
        buf_puts(out, message ? message : status_message());
    }
    glue_custom_free(&c);
    assert_ok(file_remove_tree(dir));
    MEM_FREE(dir, name, path);
}

typedef struct {
    const char *ending, *text, *labels, *expected; /* expected: all of the result, or the beginning of a refusal */
} Case;

static void check(const Case *cases, size_t n, bool multi)
{
    Buf out = {0};
    for (size_t i = 0; i < n; i++) {
        read_labels(cases[i].ending, cases[i].text, cases[i].labels, multi, &out);
        bool refused = strncmp(cases[i].expected, "train.", 6) == 0;
        if (refused ? !strstr(out.data, cases[i].expected) : strcmp(out.data, cases[i].expected) != 0)
            fail_msg("case %zu: expected '%s', found '%s'", i, cases[i].expected, out.data);
    }
    buf_free(&out);
}

#define ROW(label) "{\"t\": \"x\", \"l\": " label "}\n"
#define VECTOR(l)                                                                                                      \
    "the labels '" l                                                                                                   \
    "' look like a vector, whose elements have no names. For a vector of 0 and 1 name them in their order"

static void several_labels(void **state)
{
    (void)state;
    static const Case cases[] = {
        {"jsonl", ROW("[\"a\", \" c\"]") ROW("[]") ROW("[\"c\", \"c\"]"), NULL, "a,c: a+c||c"},
        {"csv", "t,l\nx,\"a, c\"\nx,\nx,c\n", NULL, "a,c: a+c||c"},
        {"jsonl", ROW("[\"a\", \"a\", \"b\"]") ROW("[\"c\"]"), NULL, "a,b,c: a+b|c"},
        {"csv", "t,l\nx,\"a,c,\"\nx,\"a,,c\"\n", NULL, "train.csv:3: the label is empty"},
        /* vectors need names */
        {"jsonl", ROW("[1,0,1]") ROW("[0,0,0]"), NULL, "train.jsonl:1: " VECTOR("1,0,1")},
        {"jsonl", ROW("[1,0]") ROW("[0,1]"), NULL, "train.jsonl:1: " VECTOR("1,0")},
        {"jsonl", ROW("[1]") ROW("[0]"), NULL, "train.jsonl:1: " VECTOR("1")},
        {"jsonl", ROW("[1.0, 0.0]") ROW("[0.0]"), NULL, "train.jsonl:1: " VECTOR("1.0,0.0")},
        {"jsonl", ROW("[]") ROW("[true, false]"), NULL, "train.jsonl:2: " VECTOR("true,false")},
        {"jsonl", ROW("[\"a\"]") ROW("[true, false, true]"), NULL, "train.jsonl:2: " VECTOR("true,false,true")},
        {"jsonl", ROW("[1,0,1]") ROW("[0,1,1]") ROW("[false,true,false]") ROW("[1.0,0.0,0.0]"), "a,b,c",
         "a,b,c: a+c|b+c|b|a"},
        {"csv", "t,l\nx,\"1,0,1\"\nx,0 1 0\nx,\"[1, 0, 0]\"\nx,[0. 0. 1.]\nx,\"0, 0, 0\"\nx,\"a,b\"\nx,\n", "a,b,c",
         "a,b,c: a+c|b|a|c||a+b|"},
        {"tsv", "t\tl\nx\tTrue,False\nx\t0,1\n", "a, b", "a,b: a|b"},
        {"jsonl", ROW("[1,0]"), "a,b,c",
         "train.jsonl:1: the labels '1,0' are a vector of 2 elements; expected one for each of 3 labels"},
        {"jsonl", ROW("[1]") ROW("[0]"), "spam", "spam: spam|"},
        /* labels that are called 0 and 1 */
        {"jsonl", ROW("[0]") ROW("[]") ROW("[0, 1]") ROW("[1]"), NULL, "0,1: 0||0+1|1"},
        {"jsonl", ROW("[0]") ROW("[1]") ROW("[1, 0]"), "0,1", "0,1: 0|1|0+1"},
        {"jsonl", ROW("[0, 1]") ROW("[1, 0]"), "0,1", "train.jsonl: each row has all labels: they look like vectors"},
        {"jsonl", ROW("[0, 1]") ROW("[1, 1]"), "0,1", "train.jsonl:2: " VECTOR("1,1")},
        {"jsonl", ROW("[0, 2]") ROW("[1, 2]") ROW("[2]"), NULL, "0,1,2: 0+2|1+2|2"},
        {"jsonl", ROW("[10, 20]") ROW("[20, 20]"), "10,20,30", "train.jsonl:2: " VECTOR("20,20")},
        {"jsonl", ROW("[1, -1, 1]"), NULL, "train.jsonl:1: " VECTOR("1,-1,1")},
        {"jsonl", ROW("[1, -1]") ROW("[-1, 1]"), NULL, "train.jsonl: each row has all labels: they look like vectors"},
        {"csv", "t,l\nx,Action|Comedy\n", NULL,
         "train.csv:2: the label 'Action|Comedy' holds another separator than a"},
        {"csv", "t,l\nx,1;0;1\n", NULL, "train.csv:2: the label '1;0;1' holds another separator than a comma"},
        {"csv", "t,l\nx,\"a|b, c\"\n", "a|b,c", "a|b,c: a|b+c"},
        {"jsonl", ROW("[0.25, 0.75]"), NULL, "train.jsonl:1: the label '0.25' is a number with a fraction"},
        {"csv", "t,l\nx,\"['a', 'b']\"\n", NULL, "train.csv:2: the labels '['a', 'b']' are a list as Python prints it"},
        {"csv", "t,l\nx,[a]\nx,b\n", NULL, "[a],b: [a]|b"},
        {"csv", "t,l\nx,\"('a', 'b')\"\n", NULL, "train.csv:2: the labels '('a', 'b')' are a list as Python prints it"},
        {"csv", "t,l\nx,{'a'}\n", NULL, "train.csv:2: the labels '{'a'}' are a list as Python prints it"},
        {"csv", "t,l\nx,\"(1, 0, 1)\"\n", "a,b,c", "a,b,c: a+c"},
        {"csv", "t,l\nx,\"[3, 27]\"\nx,[ 3 12]\nx,[27]\n", NULL, "3,12,27: 3+27|3+12|27"},
        {"csv", "t,l\nx,\"[0.5, 1]\"\n", NULL, "train.csv:2: the label '0.5' is a number with a fraction"},
        {"csv", "t,l\nx,\"tensor([1, 0, 1])\"\n", NULL, "train.csv:2: the label 'tensor([1' holds one bracket of a"},
        {"csv", "t,l\nx,a [b]\nx,\"(c),a [b]\"\n", NULL, "(c),a [b]: a [b]|(c)+a [b]"},
        {"csv", "t,l\nx,\"no,yes\"\nx,\"no,no\"\n", NULL, "train.csv:2: " VECTOR("no,yes")},
        {"csv", "t,l\nx,101\nx,010\n", NULL, "train.csv: the labels, as '010', look like vectors without separators"},
        {"csv", "t,l\nx,\"10,11\"\nx,2\n", NULL, "2,10,11: 10+11|2"},
        {"jsonl", ROW("[\"a\", \"\"]"), NULL, "train.jsonl:1: 'l' has an empty text in its array"},
        {"csv", "t,l\nx,a\nx,nan\n", NULL, "train.csv:3: the label 'nan' is a table's word for a missing value"},
        {"jsonl", ROW("[\"a\", null]"), NULL, "train.jsonl:1: 'l' is null; expected a text or a number"},
    };
    check(cases, sizeof cases / sizeof *cases, true);
}

static void one_label(void **state)
{
    (void)state;
    static const Case cases[] = {
        {"jsonl", ROW("\"a\"") ROW("[\"a\", \"b\"]"), NULL,
         "train.jsonl:2: 'l' is an array; expected a text or a number"},
        {"json", "{\"t\": [\"x\", \"y\"], \"l\": [1, 0]}\n", NULL, "train.json:1: 'l' is an array; expected a text or"},
        {"json", "{\"t\": {\"0\": \"x\"}, \"l\": {\"0\": \"a\"}}\n", NULL,
         "train.json:1: 'l' is an object; expected a text or a number (a line is one row)"},
        {"csv",
         "t,l\nx, a\nx,a \nx,b\nx,\xc2\xa0"
         "b\n",
         NULL, "a,b: a|a|b|b"},
        {"csv", "t,l\nx,a\nx,b \n", " b , a", "b,a: a|b"},
        {"jsonl", ROW("1") ROW("\"0\"") ROW("1 "), NULL, "0,1: 1|0|1"},
        {"csv", "t,l\nx,1.0\nx,0.0\n", NULL, "0.0,1.0: 1.0|0.0"},
        {"jsonl", ROW("1.0") ROW("0.0"), NULL, "0.0,1.0: 1.0|0.0"},
        {"csv", "t,l\nx,1\nx,nan\nx,0\n", NULL, "train.csv:3: the label 'nan' is a table's word for a missing value"},
        {"csv", "t,l\nx,a\nx, None\n", NULL, "train.csv:3: the label 'None' is a table's word"},
        {"csv", "t,l\nx,a\nx,null\n", NULL, "train.csv:3: the label 'null' is a table's word"},
        {"csv", "t,l\nx,a\nx,#DIV/0!\n", NULL, "train.csv:3: the label '#DIV/0!' is a table's word"},
        {"csv", "t,l\nx,a\nx,NA\n", NULL, "train.csv:3: the label 'NA' is a table's word"},
        {"csv", "t,l\nx,a\nx,<NA>\n", NULL, "train.csv:3: the label '<NA>' is a table's word"},
        {"csv", "t,l\nx,a\nx,N/A\n", NULL, "train.csv:3: the label 'N/A' is a table's word"},
        {"csv", "t,l\nx,a\nx,  \n", NULL, "train.csv:3: the label is empty"},
        {"csv", "t,l\nx,none\nx,a\n", "a,none", "a,none: none|a"},
        {"csv", "t,l\nx,a\nx,nan\n", "a,b", "train.csv:3: label 'nan' is unknown; expected 'a', 'b'"},
        {"csv", "t,l\nx,0.5\nx,nan\n", NULL, "train.csv:3: the label 'nan' is a table's word"},
        {"csv", "t,l\nx, 0.5\nx,1 \n", NULL, ": 0.5|1"},
        {"tsv", "t\tl\nx\t0,5\nx\t2\n", NULL, "train.tsv: the labels are numbers with a decimal comma ('0,5'); write"},
        {"tsv", "t\tl\nx\ta,5\nx\t2\n", NULL, "2,a,5: a,5|2"},
        {"tsv", "t\tl\nx\ta\nx\t\\N\n", NULL, "train.tsv:3: the label '\\N' is a table's word"},
        {"csv", "t,l\nx,1000000000000000000\nx,1000000000000000001\n", NULL,
         "1000000000000000000,1000000000000000001: 1000000000000000000|1000000000000000001"},
        {"csv", "t,l\nx,0.5\nx,nan\n", "regression", "train.csv:3: expected a number as score, found 'nan'"},
        {"csv", "t,l\nx,0.5\nx,inf\n", "regression", "train.csv:3: expected a number as score, found 'inf'"},
        {"jsonl", ROW("0.5") ROW("1e400"), "regression", "train.jsonl:2: 'l' is not a finite number; expected"},
    };
    check(cases, sizeof cases / sizeof *cases, false);
}

static void a_models_labels_keep_their_blanks(void **state)
{
    (void)state;
    static const char *const names[] = {" a", "a", "b "};
    const GlueTask task = {.labels = names, .n_labels = 3};
    assert_int_equal(glue_label_find(&task, "a", 1), 1);
    assert_int_equal(glue_label_find(&task, " a", 2), 0);
    assert_int_equal(glue_label_find(&task, "a ", 2), 0);
    assert_int_equal(glue_label_find(&task, "b", 1), 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(several_labels),
        cmocka_unit_test(one_label),
        cmocka_unit_test(a_models_labels_keep_their_blanks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
