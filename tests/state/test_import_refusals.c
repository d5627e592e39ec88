/* Importing weights: tensors that do not fit the model are listed and refused. */
#include "state/import_case.h"

/* ---- heads ---- */

static void test_a_head_comes_whole_or_not_at_all(void **state)
{
    (void)state;
    Case c;
    case_open(&c, pretraining);
    remove_tensor(&c.tensors, "cls.predictions.transform.dense.bias");
    assert_status(case_import(&c), E_FORMAT);
    assert_message("1 missing");
    assert_message("cls.predictions.transform.dense.bias");
    case_close(&c);
    case_open(&c, classifier3);
    resize_rows(&c.tensors, find_tensor(&c.tensors, "classifier.weight"), 2, 0); /* the bias still has 3 */
    assert_status(case_import(&c), E_FORMAT);
    assert_message("1 wrong shape");
    case_close(&c);
}

/* ---- the vocabulary ---- */

static void test_padded_vocabularies(void **state)
{
    (void)state;
    static const struct {
        int64_t rows;
        bool good;
    } cases[] = {{101, true}, {104, true}, {128, true}, {100, false}, {102, false}, {112, false}, {192, false}};
    static const char *const names[] = {"bert.embeddings.word_embeddings.weight", "cls.predictions.bias",
                                        "cls.predictions.decoder.weight"};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Case c;
        case_open(&c, pretraining);
        int word = find_tensor(&c.tensors, names[0]);
        add_tensor(&c.tensors, names[2], (int64_t[]){101, 12}, 2, c.tensors.data[word]);
        for (int n = 0; n < 3; n++) resize_rows(&c.tensors, find_tensor(&c.tensors, names[n]), cases[i].rows, NAN);
        Status status = case_import(&c);
        if (cases[i].good) {
            assert_ok(status);
            assert_same(&c.model, c.given, c.got); /* pad rows are 0 */
            assert_int_equal(c.report.n[IMPORT_TIED], 1);
        } else {
            Buf errors = {0};
            assert_status(status, E_FORMAT);
            assert_message("3 wrong shape");
            assert_refused(&c, &errors);
            char *both = mem_printf("%" PRId64 " rows of vocabulary, expected the model's 101 (or 104, 128, padded)",
                                    cases[i].rows);
            assert_contains(&errors, both);
            free(both);
            buf_free(&errors);
        }
        case_close(&c);
    }
}

/* ---- tied copies ---- */

static void test_a_tied_copy_must_be_equal(void **state)
{
    (void)state;
    Case c;
    case_open(&c, pretraining);
    int word = find_tensor(&c.tensors, "bert.embeddings.word_embeddings.weight");
    int decoder =
        add_tensor(&c.tensors, "cls.predictions.decoder.weight", (int64_t[]){101, 12}, 2, c.tensors.data[word]);
    int bias = add_tensor(&c.tensors, "cls.predictions.decoder.bias", (int64_t[]){101}, 1,
                          c.tensors.data[find_tensor(&c.tensors, "cls.predictions.bias")]);
    assert_ok(case_import(&c));
    assert_int_equal(c.report.n[IMPORT_TIED], 2);
    assert_same(&c.model, c.given, c.got);

    c.tensors.data[decoder][7 * 12 + 5] += 0.25f;
    assert_status(case_import(&c), E_FORMAT);
    assert_message("cls.predictions.decoder.weight");
    assert_message("[7, 5]");
    c.tensors.data[decoder][7 * 12 + 5] = c.tensors.data[word][7 * 12 + 5];
    c.tensors.data[bias][100] = NAN;
    assert_status(case_import(&c), E_FORMAT);
    assert_message("cls.predictions.decoder.bias");
    case_close(&c);
}

static void test_a_copy_alone_serves(void **state)
{
    (void)state;
    Case c;
    case_open(&c, pretraining);
    rename_tensor(&c.tensors, find_tensor(&c.tensors, "cls.predictions.bias"), "cls.predictions.decoder.bias");
    rename_tensor(&c.tensors, find_tensor(&c.tensors, "bert.embeddings.word_embeddings.weight"),
                  "cls.predictions.decoder.weight");
    assert_ok(case_import(&c));
    assert_same(&c.model, c.given, c.got);
    case_close(&c);
}

/* ---- refusals ---- */

static void test_all_that_does_not_fit_is_one_table(void **state)
{
    (void)state;
    Case c;
    Buf errors = {0};
    case_open(&c, classifier3);
    remove_tensor(&c.tensors, "bert.encoder.layer.1.attention.self.key.weight");
    remove_tensor(&c.tensors, "bert.embeddings.LayerNorm.bias");
    add_tensor(&c.tensors, "bert.encoder.layer.2.output.dense.bias", (int64_t[]){12}, 1, NULL);
    add_tensor(&c.tensors, "lm_head.weight", (int64_t[]){3, 5}, 2, NULL);
    resize_rows(&c.tensors, find_tensor(&c.tensors, "bert.encoder.layer.0.intermediate.dense.weight"), 21, 0);
    transpose_tensor(&c.tensors, find_tensor(&c.tensors, "bert.encoder.layer.1.output.dense.weight"));
    int whole = find_tensor(&c.tensors, "bert.pooler.dense.bias"); /* as many bytes, of another type */
    c.tensors.infos[whole].dtype = I32;
    TensorInfo *types = &c.tensors.infos[find_tensor(&c.tensors, "bert.embeddings.token_type_embeddings.weight")];
    types->dims[1] = 11; /* only the rows fit */
    add_tensor(&c.tensors, "module.bert.pooler.dense.weight", (int64_t[]){12, 12}, 2, NULL);
    assert_status(case_import(&c), E_FORMAT);
    assert_message("2 missing, 2 unexpected, 4 wrong shape, 1 given twice");
    assert_message(c.path);
    assert_refused(&c, &errors);
    static const char *const rows[] = {
        "  missing      bert.encoder.layer.1.attention.self.key.weight",
        "  missing      bert.embeddings.LayerNorm.bias",
        "  expected (12)",
        "  unexpected   bert.encoder.layer.2.output.dense.bias",
        "  unexpected   lm_head.weight",
        "  wrong shape  bert.encoder.layer.0.intermediate.dense.weight",
        "  (21, 12), expected (20, 12)",
        "  (20, 12), expected (12, 20)",
        "  (2, 11), expected (2, 12)",
        "  i32 (12), expected f32, f16, bf16 or f64",
        "  given twice  bert.pooler.dense.weight",
        "as 'bert.pooler.dense.weight' and 'module.bert.pooler.dense.weight'",
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) assert_contains(&errors, rows[i]);
    buf_free(&errors);
    case_close(&c);
}

static void test_a_long_table_is_cut(void **state)
{
    (void)state;
    Case c;
    Buf errors = {0};
    case_open(&c, pretraining);
    for (int i = 0; i < 70; i++) {
        char *name = mem_printf("extra.%d", i);
        add_tensor(&c.tensors, name, (int64_t[]){1}, 1, NULL);
        free(name);
    }
    assert_status(case_import(&c), E_FORMAT);
    assert_message("70 unexpected: extra.0, extra.1, extra.2, extra.3, extra.4, extra.5 …");
    assert_refused(&c, &errors);
    assert_contains(&errors, "extra.59");
    assert_contains(&errors, "… and 10 more");
    assert_null(strstr(errors.data, "extra.60"));
    buf_free(&errors);
    case_close(&c);
}

static void test_a_scalar_or_many_dimensions_do_not_fit(void **state)
{
    (void)state;
    Case c;
    case_open(&c, classifier3);
    TensorInfo *t = &c.tensors.infos[find_tensor(&c.tensors, "bert.encoder.layer.0.output.dense.weight")];
    for (int d = 0; d < TENSOR_MAX_DIMS; d++) t->dims[d] = 1;
    t->dims[0] = 12;
    t->dims[7] = 20;
    t->n_dims = TENSOR_MAX_DIMS;
    assert_status(case_import(&c), E_FORMAT);
    assert_message("1 wrong shape");
    case_close(&c);
    case_open(&c, classifier3);
    t = &c.tensors.infos[find_tensor(&c.tensors, "bert.embeddings.LayerNorm.bias")];
    t->n_dims = 0;
    assert_status(case_import(&c), E_FORMAT);
    case_close(&c);
}

static void test_weights_that_are_not_finite_are_named(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int64_t at;
        float value;
        const char *found;
    } cases[] = {
        {"bert.encoder.layer.1.attention.self.query.weight", 3 * 12 + 4, NAN, "holds NaN at [3, 4]"},
        {"bert.encoder.layer.1.attention.self.query.weight", 143, -INFINITY, "holds an infinity at [11, 11]"},
        {"bert.embeddings.LayerNorm.weight", 9, INFINITY, "holds an infinity at [9]"},
        {"bert.embeddings.word_embeddings.weight", 100 * 12, NAN, "holds NaN at [100, 0]"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Case c;
        case_open(&c, classifier3);
        c.tensors.data[find_tensor(&c.tensors, cases[i].name)][cases[i].at] = cases[i].value;
        assert_status(case_import(&c), E_NUMERIC);
        assert_message(cases[i].found);
        assert_message(cases[i].name);
        assert_message(c.path);
        case_close(&c);
    }
    Case c; /* the index in the file's own order */
    case_open(&c, classifier3);
    int i = find_tensor(&c.tensors, "bert.encoder.layer.0.output.dense.weight");
    c.tensors.data[i][2 * 20 + 17] = NAN;
    transpose_tensor(&c.tensors, i);
    rename_tensor(&c.tensors, i, "bert/encoder/layer_0/output/dense/kernel");
    assert_status(case_import(&c), E_NUMERIC);
    assert_message("'bert/encoder/layer_0/output/dense/kernel' holds NaN at [17, 2]");
    case_close(&c);
}

static void test_a_missing_file_is_named(void **state)
{
    (void)state;
    Case c;
    case_open(&c, classifier3);
    assert_status(import_weights("/nonexistent/model", &c.model, 1, c.got, &c.report), E_IO);
    assert_message("/nonexistent/model");
    assert_status(import_weights(c.directory, &c.model, 1, c.got, NULL), E_IO);
    case_close(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_head_comes_whole_or_not_at_all),
        cmocka_unit_test(test_padded_vocabularies),
        cmocka_unit_test(test_a_tied_copy_must_be_equal),
        cmocka_unit_test(test_a_copy_alone_serves),
        cmocka_unit_test(test_all_that_does_not_fit_is_one_table),
        cmocka_unit_test(test_a_long_table_is_cut),
        cmocka_unit_test(test_a_scalar_or_many_dimensions_do_not_fit),
        cmocka_unit_test(test_weights_that_are_not_finite_are_named),
        cmocka_unit_test(test_a_missing_file_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
