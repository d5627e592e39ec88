/* Rows of TSV, CSV, JSON lines and plain lines: what RFC 4180 says, every error with its place, any piece of reading.
 */
#include "testing.h"

#include "data/gz.h"
#include "data/records.h"

static const RecordsOptions text_and_label = {.columns = {"text", "label"}, .n = 2};

static Status open_text(Records **r, const char *name, const char *text, const RecordsOptions *o)
{
    return records_open_memory(r, name, text, strlen(text), o);
}

static void assert_text(RecordText t, const char *expected)
{
    if (!record_text_is(t, expected)) fail_msg("expected '%s', found '%.*s'", expected, (int)t.len, t.p ? t.p : "");
}

/* The rows of a file as "text|label" with its line before each: "2:a|1 3:b|2". */
static void assert_rows(const char *name, const char *text, const RecordsOptions *o, const char *expected)
{
    Records *r;
    const Record *row;
    Buf out = {0};
    assert_ok(open_text(&r, name, text, o));
    for (;;) {
        assert_ok(records_next(r, &row));
        if (!row) break;
        buf_printf(&out, "%s%lld:", out.len ? " " : "", (long long)row->line);
        for (int k = 0; k < o->n; k++) {
            if (k) buf_puts(&out, "|");
            if (row->texts[k].p)
                buf_append(&out, row->texts[k].p, row->texts[k].len);
            else
                buf_puts(&out, "NONE");
        }
    }
    assert_string_equal(out.data ? out.data : "", expected);
    buf_free(&out);
    records_close(r);
}

static void assert_refused(const char *name, const char *text, const RecordsOptions *o, const char *message)
{
    Records *r;
    const Record *row = NULL;
    Status status = open_text(&r, name, text, o);
    if (status == OK) {
        do status = records_next(r, &row);
        while (status == OK && row);
        records_close(r);
    } else {
        assert_null(r);
    }
    assert_status(status, E_FORMAT);
    assert_message(message);
}

/* ---- CSV ---- */

static void csv_as_rfc_4180_has_it(void **state)
{
    (void)state;
    assert_rows("f.csv", "text,label\na,1\nb,2\n", &text_and_label, "2:a|1 3:b|2");
    assert_rows("f.csv", "text,label\r\na,1\r\nb,2", &text_and_label, "2:a|1 3:b|2");
    assert_rows("f.csv", "\xef\xbb\xbf\"label\",x,text\n1,,a\n2,y,b\n\n", &text_and_label, "2:a|1 3:b|2");
    assert_rows("f.csv", "text,label\n\"a, \"\"b\"\"\r\nc\",1\n\n\"\",2\n,3\n", &text_and_label,
                "2:a, \"b\"\r\nc|1 5:|2 6:|3");
    assert_rows("f.csv", "text,label\n\"\"\"\",\"\"\"x\"\n", &text_and_label, "2:\"|\"x");
    assert_rows("f.csv", "text,label\na\tb, 1 \n", &text_and_label, "2:a\tb| 1 "); /* spaces belong to the column */
    assert_rows("f.csv", " text , label\t\na,1\n", &text_and_label, "2:a|1");      /* but not to its name */
    assert_rows("f.tsv", "text\t\xc2\xa0label\n\"a\"\t\"1\"\n", &text_and_label, "2:\"a\"|\"1\"");
    assert_refused("f.csv", "label, label,text\n", &text_and_label, "names column 'label' twice (columns 1 and 2)");
}

static void csv_errors_have_line_and_column(void **state)
{
    (void)state;
    assert_refused("f.csv", "text,label\na,1\nb \"c\",2\n", &text_and_label, "f.csv:3:3: a quote within a column");
    assert_refused("f.csv", "text,label\na,1\n\"b\nc\"d,2\n", &text_and_label,
                   "f.csv:4:3: expected a comma or the end of the line after a closing quote, found 'd,2'");
    assert_refused("f.csv", "text,label\na,1\nx,\"b\nc,2\n", &text_and_label,
                   "f.csv:3:3: expected a closing quote (\") of the column that begins here");
    assert_refused("f.csv", "text,label\na,b,1\n", &text_and_label,
                   "f.csv:2: expected 2 columns, found 3; look for a comma that is not within quotes");
    assert_refused("f.csv", "text,label\n\"a\nb\",1\na\n", &text_and_label, "f.csv:4: expected 2 columns, found 1");
    assert_refused("f.csv", "text,label\n\"a\nb\xff\",1\n", &text_and_label,
                   "f.csv:3: expected UTF-8, found byte 0xff at offset 15 of the file (byte 2 of the line)");
    assert_refused("f.csv", "text\tlabel\na\t1\n", &text_and_label, "name the file .tsv");
    assert_refused("f.csv", "text;label\na;1\n", &text_and_label, "semicolons");
    assert_refused("f.csv", "id;text, title;label\n1;a;1\n", &text_and_label, "semicolons");
    assert_refused("f.csv", "id\ttext, title\tlabel\n1\ta\t1\n", &text_and_label, "name the file .tsv");
    Records *r;
    assert_status(records_open_memory(&r, "f.csv", "\xff\xfet\0e\0", 6, &text_and_label), E_FORMAT);
    assert_message("found UTF-16");
    assert_status(records_open_memory(&r, "f.csv", "t\0e\0x\0t\0\n\0", 10, &text_and_label), E_FORMAT);
    assert_message("f.csv:1: expected UTF-8, found NUL bytes; if the file is UTF-16");
    assert_refused("f.tsv", "text,label\na,1\n", &text_and_label, "name the file .csv");
    assert_refused("f.tsv", "text\tlabel\n\"a\nb\"\t1\n", &text_and_label,
                   "f.tsv:2: expected 2 columns, found 1; look for a line break in the text of this row; in a TSV file "
                   "quotes are text");
    assert_refused("f.tsv", "text\tlabel\n\"a, b\nc\"\t1\n", &text_and_label,
                   "found 1; look for a line break in the text of this row; in a TSV file quotes are text");
    assert_refused("f.tsv", "\"text\"\t\"label\"\na\t1\n", &text_and_label,
                   "found '\"text\"', '\"label\"'; in a TSV file quotes are text");
    assert_refused("f.csv", "text,label\ra,1\rb,2\r", &text_and_label, "found carriage returns alone");
    assert_refused("f.tsv", "text\tlabel\n\"a\tb\"\t1\n", &text_and_label,
                   "look for a tab in the text of this row; in a TSV file quotes are text");
    assert_refused("f.csv", "text,label,text\n", &text_and_label, "names column 'text' twice (columns 1 and 3)");
    assert_refused("f.csv", "\n\n", &text_and_label, "f.csv: the file is empty; expected a header and rows of comma");
}

static void columns_by_position(void **state)
{
    (void)state;
    const RecordsOptions o = {.columns = {"1", "0"}, .n = 2, .without_header = RECORDS_AS_FIRST};
    assert_rows("f.csv", "1,\"a,b\"\n2,c\n", &o, "1:a,b|1 2:c|2");
    assert_refused("f.csv", "1\n", &o, "f.csv:1: expected a column at position 1 (counted from 0), found 1 column");
    /* Another character separates the columns: the name decides, or, of a task's own files, does not. */
    assert_refused("f.tsv", "1,b\n", &o,
                   "found 1 column; that looks like columns with commas between: name the file .csv");
    assert_refused("f.csv", "1\tb\n", &o, "name the file .tsv");
    assert_refused("f.csv", "a text\tb\n",
                   &(RecordsOptions){.columns = {"0"}, .n = 1, .without_header = RECORDS_AS_FIRST},
                   "f.csv:1: found 1 column; that looks like columns with tabs between: name the file .tsv");
    const RecordsOptions fixed = {.form = RECORDS_TSV, .columns = {"1", "0"}, .n = 2, .without_header = 4};
    assert_refused("f.tsv", "1,b,c,d\n", &fixed,
                   "f.tsv:1: expected 4 columns, found 1; that looks like columns with commas "
                   "between: this task's files have tabs");
}

/* ---- JSON lines ---- */

static void json_lines(void **state)
{
    (void)state;
    assert_rows("f.jsonl",
                "{\"text\": \"a\\n\\\"b\\u00e9\", \"label\": 1}\n\n{\"label\": \"x\", \"more\": {}, \"text\": 2.5}",
                &text_and_label, "1:a\n\"bé|1 3:2.5|x");
    const RecordsOptions list = {.columns = {"text", "label"}, .values = {RECORD_TEXT, RECORD_LIST}, .n = 2};
    assert_rows("f.json", "{\"text\": true, \"label\": [\"x\", \"y\", 3.0]}\n", &list, "1:true|x,y,3.0");
    assert_rows("f.json", "{\"text\": 1e15, \"label\": 2.0}\n{\"text\": 18446744073709551616, \"label\": 1.50}\n",
                &list, "1:1e15|2.0 2:18446744073709551616|1.50");
    /* What nobody reads harms nobody. */
    assert_rows(
        "f.jsonl",
        "{\"x\": 99999999999999999999, \"y\": [\"\\u0000\", \"\\ud800\", NaN, 1e400], \"text\": \"a\", \"x\": {}, "
        "\"label\": \"l\"}",
        &text_and_label, "1:a|l");
    const RecordsOptions any = {.columns = {"a", "b"}, .values = {RECORD_ANY, RECORD_JSON}, .n = 2};
    assert_rows("f.jsonl",
                "{\"a\": [1, {\"k\": \"v\"}], \"b\": [1.0,\"x\"]}\n{\"a\": null, \"b\": null}\n"
                "{\"a\": \"t\", \"b\": \"t\\\"\"}\n{\"a\": NaN, \"b\": 1e400}\n",
                &any, "1:[1, {\"k\": \"v\"}]|[1.0, \"x\"] 2:NONE|null 3:t|\"t\\\"\" 4:NaN|1e400");
    assert_rows("f.csv", "a,b\nt,1\n", &any, "2:t|1");
    assert_rows(
        "f.ndjson", "{\"text\": \"a\"}\n{\"text\": \"b\", \"label\": null}\n{\"text\": \"\", \"label\": []}\n",
        &(RecordsOptions){
            .columns = {"text", "label"}, .optional = {false, true}, .values = {RECORD_TEXT, RECORD_LIST}, .n = 2},
        "1:a|NONE 2:b|NONE 3:|");
    assert_refused("f.jsonl", "{\"text\": \"a\", \"label\": NaN}\n", &text_and_label,
                   "f.jsonl:1: 'label' is not a finite number; expected a text or a number");
    assert_refused("f.jsonl", "{\"text\": [\"a\", \"b\"], \"label\": 1}\n", &list,
                   "f.jsonl:1: 'text' is an array; expected a text or a number (a line is one row)");
    assert_refused("f.jsonl", "{\"text\": \"a\", \"label\": [[1]]}\n", &list, "'label' is an array; expected a text");
    assert_refused("f.jsonl", "{\"text\": \"a\", \"label\": [null]}\n", &list, "'label' is null; expected a text");
    assert_refused("f.json", "{\n  \"text\": \"a\"\n}\n", &text_and_label,
                   "each line must be a row's object, as pandas'");
    assert_refused("f.json", "[{\"text\": \"a\", \"label\": 1}]\n", &text_and_label,
                   "found an array; each line must be");
    assert_refused("f.jsonl", "{\"text\": \"a\", \"label\": 1}\n{\"text\": \"b\"}\n", &text_and_label,
                   "f.jsonl:2: expected a key 'label', found 'text'");
    assert_refused("f.jsonl", "{\"text\": \"a\", \"label\": 1}\n{\"text\": \"b\", }\n", &text_and_label,
                   "f.jsonl: line 2, column 15: not valid JSON");
    assert_refused("f.jsonl", "{\"text\": \"a\", \"label\": null}\n", &text_and_label, "f.jsonl:1: 'label' is null");
    assert_refused("f.jsonl", "{\"text\": {}, \"label\": 1}\n", &text_and_label, "f.jsonl:1: 'text' is an object");
    assert_refused("f.jsonl", "{\"text\": \"a\", \"label\": [\"x,y\"]}\n", &list, "a text with a comma");
    assert_refused("f.jsonl", "[1]\n", &text_and_label, "f.jsonl:1: expected a JSON object");
    assert_refused("f.jsonl", "", &text_and_label, "f.jsonl: the file is empty; expected rows of JSON objects");
}

/* ---- forms, pieces, gz ---- */

static void the_form_is_found(void **state)
{
    (void)state;
    const RecordsOptions o = {.columns = {"text"}, .n = 1, .plain_lines = true};
    assert_rows("x", "{\"text\": \"a\"}\n", &o, "1:a");
    assert_rows("x", "text\tb\n1\t2\n", &o, "2:1");
    assert_rows("x", "b,\"text\"\n1,2\n", &o, "2:2");
    assert_rows("x", "A plain text, with a comma.\n\nAnother.\n\n", &o, "1:A plain text, with a comma. 2: 3:Another.");
    assert_rows("x.txt", "text\n", &o, "1:text");
    assert_rows("x.txt", "text, a comma\n", &o, "1:text, a comma");
    assert_refused("x.txt", "id\ttext\n1\ta\n", &o, "x.txt:1: expected a text on each line, found 'id?text'");
    assert_refused("x", "id;text\n1;a\n", &o, "semicolons");
    assert_int_equal(records_form_of_name("a.b/c.csv.gz"), RECORDS_CSV);
    assert_int_equal(records_form_of_name("a.csv/c"), RECORDS_BY_NAME);
}

/* Rows that do not fit one read, from a file, packed or not, and from a pipe. */
static void rows_of_any_size(void **state)
{
    (void)state;
    enum { ROWS = 200 };
    char *dir = testing_directory();
    Buf text = {0};
    buf_puts(&text, "text,label\n");
    for (int i = 0; i < ROWS; i++) {
        buf_puts(&text, "\"");
        for (int k = 0; k < 1 + i * 97 % 4000; k++) buf_puts(&text, k % 50 == 7 ? "\n\"\"" : "wörd, ");
        buf_printf(&text, "\",%d\n", i);
    }
    assert_true(text.len > (size_t)2 << 20);
    char *path = file_join(dir, "big.csv"), *packed = file_join(dir, "big.csv.gz");
    assert_ok(file_write_durable(path, text.data, text.len));
    char *command = mem_printf("gzip -kc '%s' > '%s'", path, packed);
    GzReader *gz;
    bool has_gz = gz_open(&gz) == OK && system(command) == 0;
    gz_close(gz);
    for (int how = 0; how < (has_gz ? 2 : 1); how++) {
        Records *r;
        const Record *row;
        int n = 0;
        assert_ok(records_open(&r, how ? packed : path, &text_and_label));
        for (;; n++) {
            assert_ok(records_next(r, &row));
            if (!row) break;
            char label[12];
            snprintf(label, sizeof label, "%d", n);
            assert_text(row->texts[1], label);
            size_t words = 0;
            for (size_t i = 0; i < row->texts[0].len; i++)
                words += row->texts[0].p[i] == ',' || row->texts[0].p[i] == '"';
            assert_int_equal(words, 1 + n * 97 % 4000);
        }
        assert_int_equal(n, ROWS);
        records_close(r);
    }
    if (has_gz) { /* cut short */
        FileMap map;
        Records *r;
        const Record *row;
        Status status;
        assert_ok(file_map(&map, packed));
        assert_ok(records_open_memory(&r, "cut.csv.gz", map.data, map.size - 20, &text_and_label));
        do status = records_next(r, &row);
        while (status == OK && row);
        assert_status(status, E_FORMAT);
        assert_message("cut.csv.gz: the gz file ends within its data");
        records_close(r);
        file_unmap(&map);
    }
    free(command);
    free(path);
    free(packed);
    buf_free(&text);
    assert_ok(file_remove_tree(dir));
    free(dir);
}

static void files_that_are_none(void **state)
{
    (void)state;
    Records *r;
    assert_status(records_open(&r, "/nowhere/x.csv", &text_and_label), E_IO);
    assert_message("/nowhere/x.csv: cannot open");
    assert_status(records_open(&r, "/", &text_and_label), E_IO);
    assert_message("a folder");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(csv_as_rfc_4180_has_it), cmocka_unit_test(csv_errors_have_line_and_column),
        cmocka_unit_test(columns_by_position),    cmocka_unit_test(json_lines),
        cmocka_unit_test(the_form_is_found),      cmocka_unit_test(rows_of_any_size),
        cmocka_unit_test(files_that_are_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
