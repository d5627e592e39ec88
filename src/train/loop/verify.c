#include "train/loop/verify.h"

#include "state/checkpoint/checkpoint.h"
#include "train/loop/loop_internal.h"
#include "train/parts/place.h"

/* ---- facts that the bits depend on ---- */

/* Facts without which no step can agree; others may make a difference. */
static bool decides(const char *key)
{
    return str_list_has("data origin precision ranks micro_batch_tokens", ' ', key, strlen(key));
}

static Status compare_fact(const Run *r, const char *key, const char *was, const char *is)
{
    if (strcmp(was, is) == 0) return OK;
    if (strcmp(key, "ranks") == 0 && place_wanted(r->c))
        return fail(E_USAGE,
                    "%s was computed by %s replicas, and this pipeline has %s: start it with as many ranks as the run, "
                    "or with other --stages",
                    r->verify->dir, was, is);
    if (strcmp(key, "ranks") == 0)
        return fail(E_USAGE, "%s was computed by %s ranks, this is %s: start `cairn launch --ranks %s -- verify %s`",
                    r->verify->dir, was, is, was, r->verify->dir);
    if (decides(key))
        return fail(E_USAGE, "%s cannot be verified here: its %s was '%s', and is '%s'", r->verify->dir, key, was, is);
    log_warn("another machine than the run's, so steps may differ although both compute rightly: %s was '%s', is '%s'",
             key, was, is);
    return OK;
}

static Status compare_facts(const Run *r)
{
    Json *now = NULL;
    Status status = OK;
    TRY(js_parse("the fingerprint of this run", r->fingerprint.data, r->fingerprint.len, &now));
    const char *ranks = js_string(js_get(r->verify->fingerprint, "ranks"), NULL); /* others follow from it */
    if (ranks) status = compare_fact(r, "ranks", ranks, js_string(js_get(now, "ranks"), ""));
    for (void *it = js_first(now); it && status == OK; it = js_next(now, it)) {
        const char *was = js_string(js_get(r->verify->fingerprint, js_key(it)), NULL);
        if (was) status = compare_fact(r, js_key(it), was, js_string(js_value(it), ""));
    }
    js_free(now);
    return status;
}

/* The two gradients of a tied word embedding are summed apart in a pipeline. */
static Status compare_pipelines(const Run *r)
{
    bool was = r->verify->pipelined, is = place_wanted(r->c);
    if (was == is || !model_tied(&r->model)) return OK;
    return fail(E_USAGE,
                "%s was trained %s a pipeline, which adds up the word embedding's gradients in another order, so that "
                "its steps agree with this run's to rounding alone: %s",
                r->verify->dir, was ? "by" : "without",
                was ? "give another schedule in place of none, as --pipeline gpipe" : "leave --pipeline out");
}

Status verify_fingerprint(const Run *r)
{
    TRY(compare_pipelines(r));
    return ranks_all(r->ranks, run_first(r) ? compare_facts(r) : OK);
}

/* ---- steps ---- */

/* The recorded line of a step, searched from the line that was found last on: steps ascend. E_USAGE: there is none. */
static Status find_line(Verify *v, int64_t step, Json **doc)
{
    char begin[48];
    int len = snprintf(begin, sizeof begin, "{\"step\": %lld,", (long long)step);
    Status status =
        fail(E_USAGE, "%s/metrics.jsonl has no line of step %lld, so it cannot be compared", v->dir, (long long)step);
    int64_t number = v->lines;
    for (size_t at = v->at; at < v->recorded.len;) {
        const char *line = v->recorded.data + at;
        size_t length = strcspn(line, "\n");
        at += length + 1;
        number++;
        if (strncmp(line, begin, (size_t)len) != 0) continue;
        char *path = file_join(v->dir, "metrics.jsonl");
        status = js_parse_at(path, number, line, length, doc);
        free(path);
        v->at = at;
        v->lines = number;
        break;
    }
    return status;
}

enum { LEARNING_RATE };

static const struct {
    const char *key, *name;
    bool optional; /* one of the two runs may lack it */
} compared[] = {[LEARNING_RATE] = {"lr", "the learning rate", false},
                {"loss", "the loss", false},
                {"mlm_loss", "the loss of masked words", false},
                {"nsp_loss", "the loss of next sentences", false},
                {"grad_norm", "the gradient's norm", false},
                {"kfac_norm", "the norm of the gradients that K-FAC preconditions", false},
                {"loss_scale", "the loss scale", false},
                {"grads_digest", "the digest of the summed gradients", true},
                {"weights_digest", "the digest of the weights", true}};

static void put_figure(Buf *out, const Json *v)
{
    if (!v)
        buf_puts(out, "missing");
    else if (!js_put_scalar(out, v))
        buf_puts(out, "a list");
}

static Status compare_member(const Verify *v, int64_t step, size_t i, const Json *was, const Json *is)
{
    Buf a = {0}, b = {0};
    Status status = OK;
    if ((!was && !is) || (compared[i].optional && (!was || !is))) return OK;
    put_figure(&a, was);
    put_figure(&b, is);
    bool same = strcmp(a.data, b.data) == 0;
    if (!same && i == LEARNING_RATE) /* a function of the options alone */
        status = fail(E_USAGE,
                      "%s: step %lld was made with the learning rate %s, its options give %s: they were changed later "
                      "(--override). Give --steps behind that change",
                      v->dir, (long long)step, a.data, b.data);
    else if (!same)
        status =
            fail(E_DIFFERS, "%s: step %lld is the first that differs: %s was %s, and is %s. %lld steps before it agree",
                 v->dir, (long long)step, compared[i].name, a.data, b.data, (long long)v->compared);
    BUF_FREE(&a, &b);
    return status;
}

static Status compare_step(Verify *v, const StepRecord *r)
{
    Json *was = NULL, *is = NULL;
    Buf line = {0};
    Status status = OK;
    metrics_line(r, &line);
    TRY_DONE(find_line(v, r->step, &was));
    TRY_DONE(js_parse("this step", line.data, line.len, &is));
    for (size_t i = 0; i < sizeof compared / sizeof *compared; i++)
        TRY_DONE(compare_member(v, r->step, i, js_get(was, compared[i].key), js_get(is, compared[i].key)));
    v->compared++;
done:
    buf_free(&line);
    js_free(was);
    js_free(is);
    return status;
}

/* ---- checkpoints ---- */

/* The good checkpoint of a step, and its state.json; *path is NULL where there is none. */
static void find_checkpoint(Verify *v, const CheckpointList *list, int64_t step, const char **path,
                            CheckpointSeen *seen)
{
    bool damaged = false;
    *path = NULL;
    for (int i = 0; i < list->count && !*path; i++) {
        if (list->items[i].step != step) continue;
        if (checkpoint_verify(list->items[i].path, seen) == OK) {
            *path = list->items[i].path;
        } else {
            log_warn("%s: it is not compared", status_message());
            damaged = true;
        }
    }
    v->damaged += damaged && !*path;
}

static void put_value(Buf *out, const Json *v)
{
    if (js_kind(v) != JSON_KIND_ARRAY) put_figure(out, v);
    for (size_t i = 0; i < js_size(v); i++) put_figure(out, js_at(v, i));
}

/* The members of state.json that steps change. */
static const struct {
    const char *key, *inner;
    bool skips; /* updates that fp16 skips behind the step change it */
} progress[] = {{"batch", NULL, true},      {"skipped", NULL, true},       {"loss_sum", NULL, false},
                {"last_loss", NULL, false}, {"loss_scale", "scale", true}, {"loss_scale", "good", true},
                {"norm_forms", NULL, false}};

static Status compare_progress(const Run *r, const char *path, const Buf *stored)
{
    Json *was = NULL, *is = NULL;
    TrainProgress saved, own;
    Buf text = {0};
    Status status = OK;
    saving_state(r, &text);
    TRY_DONE(saving_read(path, stored, r->progress.step, &was, &saved));
    TRY_DONE(saving_read("this step", &text, r->progress.step, &is, &own));
    bool skipped = session_scale_is_dynamic(&r->session) && saved.batch > own.batch; /* saved behind such updates */
    for (size_t i = 0; i < sizeof progress / sizeof *progress && status == OK; i++) {
        const char *key = progress[i].key, *inner = progress[i].inner;
        const Json *x = js_get(was, key), *y = js_get(is, key);
        Buf a = {0}, b = {0};
        put_value(&a, inner ? js_get(x, inner) : x);
        put_value(&b, inner ? js_get(y, inner) : y);
        if (strcmp(a.data, b.data) != 0 && !(skipped && progress[i].skips))
            status = fail(E_DIFFERS, "%s/state.json: %s%s%s was %s, and is %s", path, key, inner ? "." : "",
                          inner ? inner : "", a.data, b.data);
        BUF_FREE(&a, &b);
    }
done:
    js_free(was);
    js_free(is);
    buf_free(&text);
    return status;
}

typedef struct {
    Run *run;
    const char *path; /* the checkpoint of this step */
    CheckpointSeen seen;
} Compared;

static Status compare_checkpoint(void *state, SessionAsk *ask)
{
    Compared *c = state;
    Run *r = c->run;
    const ParamTable *const *params = r->session.plan.input.place->holding.params;
    Status status = checkpoint_compare(c->path, params, &c->seen.files, session_ask, ask);
    if (status == OK) status = compare_progress(r, c->path, &c->seen.state);
    if (status == OK) r->verify->checkpoints++;
    return status_context(status, "%s: the state of step %lld differs", r->verify->dir, (long long)r->progress.step);
}

/* Collective. The state after this step with its checkpoint, if it has one. */
static Status compare_state(Run *r, const CheckpointList *list)
{
    Compared c = {.run = r};
    Status status = OK;
    if (run_first(r)) find_checkpoint(r->verify, list, r->progress.step, &c.path, &c.seen);
    bool there = c.path;
    TRY_DONE(ranks_broadcast(r->ranks, &there, sizeof there));
    if (there && session_kfac(&r->session)) TRY_DONE(session_settle_kfac(&r->session)); /* as the save did */
    if (there) status = session_asking(&r->session, compare_checkpoint, &c);
done:
    checkpoint_seen_free(&c.seen);
    return status;
}

static Status one_step(Loop *l, const CheckpointList *list)
{
    Stats stats;
    int64_t before = l->progress->step;
    double start = clock_monotonic();
    TRY(loop_step(l, &stats));
    TRY(loop_record(l, &stats, clock_monotonic() - start));
    if (l->progress->step == before) return OK; /* fp16: a skipped update */
    TRY(ranks_all(l->ranks, ranks_first(l->ranks) ? compare_step(l->run->verify, &l->record) : OK));
    TRY(loop_check_forms(l));
    return compare_state(l->run, list);
}

Status verify_steps(Run *r)
{
    Loop l;
    CheckpointList list = {0};
    bool stop = false;
    loop_open(&l, r);
    Status status = ranks_all(r->ranks, run_first(r) ? checkpoint_find(r->verify->dir, &list) : OK);
    while (status == OK && !stop && r->progress.step < r->verify->last) {
        status = one_step(&l, &list);
        stop = ranks_signal(r->ranks) != 0;
    }
    loop_free(&l);
    checkpoint_list_free(&list);
    if (status == E_STOPPED || (status == OK && stop))
        return fail(E_STOPPED, "stopped; %lld steps agree so far", (long long)r->verify->compared);
    return status;
}
