#include "train/loop/audit.h"

#include <unistd.h>

#include "base/host.h"
#include "faults/excluded.h"
#include "train/keep/suspects.h"
#include "train/parts/audit_choice.h"

/* Where a rank computes. */
typedef struct {
    char host[80];
    int64_t local_rank;
    char machine[BACKEND_DESCRIBE]; /* the backend with its libraries and device; "" before it is open */
    bool compares;                  /* its plans make tensors twice */
} RankHost;

struct Audit {
    const Run *run;
    AuditChoice choice;
    RankHost *hosts;       // (ranks)
    bool alike;            /* all ranks compute alike, so each can compute the share of another */
    int group, groups;     /* of ranks that compute a share together; rank % groups is the group */
    uint64_t *sent;        // (2, chunks, 2) what works sent for the own share and for the partner's; NULL: no works
    AuditFinding *history; // (AUDIT_ATTEMPTS, ranks) of the step
    AuditBlame *blame;     // (ranks)
    int64_t steps, twice, differences;
    int64_t same; /* the last step after which all ranks had the same weights, as far as is known */
};

/* ---- places ---- */

static RankHost own_host(const Run *run)
{
    RankHost p = {.local_rank = ranks_local(run->ranks)};
    host_name(p.host, sizeof p.host);
    if (run->setup.backend) strcpy(p.machine, run->setup.backend->describe);
    for (int k = 0; run->session.plan.chunk && k < session_chunks(&run->session); k++)
        p.compares |= run->session.plan.chunk[k].train_tensors.audit != NONE;
    return p;
}

static int n_ranks(const Audit *a) { return ranks_size(a->run->ranks); }

/* Digests of what a place sends for a share: of each chunk, back and forward. */
static size_t sent_size(const Audit *a) { return 2 * (size_t)session_chunks(&a->run->session); }

static Status compare_places(const Run *run, const ExcludedPlace *places, int n)
{
    const RankHost here = own_host(run);
    for (int i = 0; i < n; i++)
        if (strcmp(places[i].host, here.host) == 0 && places[i].local_rank == here.local_rank)
            return fail(E_PEER,
                        "the place of local rank %lld on %s is excluded from this run: it computed wrongly, as %s/%s "
                        "says. Start without it; or remove that file when the machine was repaired",
                        (long long)here.local_rank, here.host, run->c->output_dir, EXCLUDED_REPORT);
    return OK;
}

Status audit_check_excluded(const Run *run)
{
    ExcludedPlace *places = NULL;
    int n = 0;
    Status status = ranks_all(run->ranks, run_first(run) ? excluded_read(run->c->output_dir, false, &places, &n) : OK);
    if (status == OK) status = ranks_broadcast(run->ranks, &n, sizeof n);
    if (status == OK && n > 0) {
        if (!run_first(run)) places = mem_array((size_t)n, sizeof *places);
        status = ranks_broadcast(run->ranks, places, (size_t)n * sizeof *places);
    }
    if (status == OK) status = ranks_all(run->ranks, compare_places(run, places, n));
    free(places);
    return status;
}

static Status gather_hosts(Audit *a)
{
    const RankHost own = own_host(a->run);
    a->hosts = mem_array((size_t)n_ranks(a), sizeof *a->hosts);
    TRY(ranks_allgather(a->run->ranks, &own, sizeof own, a->hosts));
    session_group(&a->run->session, &a->group, &a->groups);
    a->alike = a->groups > 1;
    for (int r = 1; r < n_ranks(a); r++) a->alike &= strcmp(a->hosts[r].machine, a->hosts[0].machine) == 0;
    return OK;
}

/* ---- of a run ---- */

static const char *second_place(const Audit *a)
{
    bool pipeline = a->sent != NULL;
    if (a->alike) return pipeline ? "the second time by another pipeline" : "the second time on another rank";
    if (a->groups > 1) return "both times on the same rank, because the ranks compute with different libraries";
    return n_ranks(a) > 1 ? "both times by the same ranks, because there is one pipeline" : "both times here";
}

static void log_choice(const Audit *a)
{
    bool compares = false;
    for (int r = 0; r < n_ranks(a); r++) compares |= a->hosts[r].compares;
    if (a->choice.recompute && !compares)
        log_warn("--audit recompute: --recompute %s makes no tensor twice, so nothing is compared%s",
                 a->run->session.plan.layers.policy, a->run->session.plan.other ? " but while a save is written" : "");
    if (a->choice.share > 0)
        log_info("audit: %g %% of the steps are computed twice, %s", 100 * a->choice.share, second_place(a));
}

Status audit_open(Audit **audit, const Run *run)
{
    AuditChoice choice;
    TRY(audit_parse(run->c->audit, &choice));
    *audit = NULL;
    if (!choice.recompute && !(choice.share > 0)) return OK;
    Audit *a = *audit = mem_alloc(sizeof *a);
    *a = (Audit){.run = run, .choice = choice, .same = run->progress.step};
    TRY(gather_hosts(a));
    a->history = mem_array((size_t)AUDIT_ATTEMPTS * (size_t)n_ranks(a), sizeof *a->history);
    a->blame = mem_array((size_t)n_ranks(a), sizeof *a->blame);
    if (session_sent(&run->session)) a->sent = mem_array(2 * sent_size(a), sizeof *a->sent);
    if (run_first(run)) log_choice(a);
    return OK;
}

void audit_close(Audit *a)
{
    if (!a) return;
    if (run_first(a->run) && a->steps > 0)
        log_info("audit: %lld steps, %lld of them computed twice, %lld differences", (long long)a->steps,
                 (long long)a->twice, (long long)a->differences);
    MEM_FREE(a->hosts, a->history, a->blame, a->sent, a);
}

bool audit_twice(const Audit *a, int64_t step)
{
    if (!a || !(a->choice.share > 0)) return false;
    uint64_t key = (uint64_t)a->run->c->seed ^ PHILOX_AUDIT;
    uint32_t draw = philox4(key, (uint32_t)step, (uint32_t)((uint64_t)step >> 32), 0, 0).v[0];
    return (double)draw < a->choice.share * 4294967296.0;
}

bool audit_notes(const Audit *a, int64_t step) { return a && (a->choice.recompute || audit_twice(a, step)); }

int audit_partner(const Audit *a, int attempt)
{
    int rank = ranks_rank(a->run->ranks);
    return a->alike ? rank - a->group + (a->group + 1 + attempt % (a->groups - 1)) % a->groups : rank;
}

void audit_take_sent(Audit *a, bool other)
{
    const uint64_t *sent = session_sent(&a->run->session);
    if (sent) memcpy(a->sent + other * sent_size(a), sent, sent_size(a) * sizeof *sent);
}

/* ---- what a place sends ---- */

static bool differs(const Audit *a, const AuditFinding *now)
{
    for (int r = 0; r < n_ranks(a); r++)
        if (now[r].partner >= 0 && now[r].other != now[now[r].partner].own) return true;
    return false;
}

/* Collective, where works were computed twice. */
static Status compare_sent(const Audit *a, AuditFinding *now)
{
    if (!a->sent || !differs(a, now)) return OK;
    size_t bytes = 2 * sent_size(a) * sizeof *a->sent;
    uint64_t *all = mem_array((size_t)n_ranks(a), bytes);
    Status status = ranks_allgather(a->run->ranks, a->sent, bytes, all);
    if (status == OK) audit_follow(&a->run->session.plan.input.place->grid, all, now);
    free(all);
    return status;
}

/* All gradients of a coupled step follow from all embeddings: where these differ they alone are judged. */
static void judge_vectors(const Audit *a, AuditFinding *now)
{
    bool differ = false;
    for (int r = 0; r < n_ranks(a); r++)
        differ |= now[r].partner >= 0 && now[r].other_vectors != now[now[r].partner].own_vectors;
    for (int r = 0; r < n_ranks(a) && differ; r++) {
        now[r].own = now[r].own_vectors;
        now[r].other = now[r].other_vectors;
    }
}

/* ---- differences ---- */

static bool damaged(const AuditBlame *b) { return b->changed || b->apart; }

static bool blamed(const AuditBlame *b) { return b->recomputed || b->wrong || b->suspect || damaged(b); }

/* The first difference in an array. */
static void name_changed(const Audit *a, AuditFinding *f)
{
    const Plan *p = &a->run->session.plan.chunk->train;
    const Tensor *part = &p->tensors[f->changed.tensor], *of = part;
    if (part->original != NONE) {
        of = &p->tensors[part->original];
        f->element = (int64_t)((part->offset - of->offset) / dtype_size(of->dtype)) + f->changed.row * part->cols;
    }
    snprintf(f->array, sizeof f->array, "%s", of->name);
}

static void name_recomputed(const Audit *a, AuditFinding *f)
{
    const Plan *p = &a->run->session.plan.chunk[f->chunk].train;
    InstrId maker = plan_maker(p, (TensorId)f->recomputed.tensor);
    f->instr = maker;
    plan_instr_name(p, maker, f->instr_name);
    snprintf(f->op, sizeof f->op, "%s", op_info(p->instrs[maker].op)->name);
    snprintf(f->tensor, sizeof f->tensor, "%s", p->tensors[f->recomputed.tensor].name);
}

static void describe(const Audit *a, int rank, const AuditFinding *f, Buf *out)
{
    const AuditBlame *b = &a->blame[rank];
    buf_printf(out, "rank %d on %s: ", rank, a->hosts[rank].host);
    if (b->changed)
        buf_printf(out, "'%s' changed in memory since the last update, from element %lld on", f->array,
                   (long long)f->element);
    if (b->apart) buf_printf(out, "%sits weights are not those of the other ranks", b->changed ? "; " : "");
    if (damaged(b)) return;
    if (b->recomputed)
        buf_printf(out, "instr %lld (%s) made tensor '%s' with other bits than the first time, from row %lld on",
                   (long long)f->instr, f->instr_name, f->tensor, (long long)f->recomputed.row);
    if (b->wrong || b->suspect) buf_puts(out, b->recomputed ? "; " : "");
    if (b->wrong) buf_puts(out, "it computed other gradients from the same sequences");
    if (b->suspect && !b->wrong) buf_puts(out, "it or its partner computed other gradients from the same sequences");
}

static void put_line(const Audit *a, int64_t step, int attempt, double time, int rank, const AuditFinding *f, Buf *out)
{
    const AuditBlame *b = &a->blame[rank];
    buf_printf(out, "{\"step\": %lld, \"attempt\": %d, \"time\": %.3f, \"rank\": %d, \"host\": ", (long long)step,
               attempt + 1, time, rank);
    buf_json(out, a->hosts[rank].host);
    buf_printf(out, ", \"local_rank\": %lld, \"gradients\": \"%s\"", (long long)a->hosts[rank].local_rank,
               b->wrong     ? "wrong"
               : b->suspect ? "suspect"
                            : "right");
    if (b->changed) buf_printf(out, ", \"changed\": \"%s\", \"element\": %lld", f->array, (long long)f->element);
    if (b->apart) buf_puts(out, ", \"weights\": \"apart\"");
    if (b->recomputed) {
        buf_printf(out, ", \"instr\": %lld, \"op\": \"%s\", \"tensor\": ", (long long)f->instr, f->op);
        buf_json(out, f->tensor);
        buf_printf(out, ", \"row\": %lld, \"rows\": %lld", (long long)f->recomputed.row, (long long)f->recomputed.rows);
    }
    buf_printf(out, ", \"excluded\": %s}\n", b->excluded ? "true" : "false");
}

/* Rank 0: warnings, and lines of audit.jsonl. */
static Status record(const Audit *a, int64_t step, int attempt)
{
    Status status = OK;
    Buf lines = {0}, text = {0};
    char *path = file_join(a->run->c->output_dir, EXCLUDED_LINES);
    bool any = false;
    double now = clock_wall(); /* of all these lines */
    for (int r = 0; r < n_ranks(a); r++) any = any || a->blame[r].excluded;
    if (any && file_exists(path) && !file_exists_in(a->run->c->output_dir, EXCLUDED_REPORT))
        buf_puts(&lines, EXCLUDED_REPAIRED);
    for (int r = 0; r < n_ranks(a); r++) {
        const AuditFinding *f = &a->history[attempt * n_ranks(a) + r];
        if (!blamed(&a->blame[r])) continue;
        put_line(a, step, attempt, now, r, f, &lines);
        describe(a, r, f, &text);
        log_warn("step %lld, attempt %d: %s. %s", (long long)step, attempt + 1,
                 damaged(&a->blame[r]) ? "memory is damaged" : "a machine computes wrongly", text.data);
        buf_free(&text);
    }
    if (file_exists(path)) status = file_read(path, (size_t)1 << 30, &text);
    buf_append(&text, lines.data, lines.len);
    if (status == OK) status = file_write_durable(path, text.data, text.len);
    BUF_FREE(&lines, &text);
    free(path);
    return status;
}

/* Rank 0: for the administrator. */
static Status write_report(const Audit *a, int64_t step, int attempts)
{
    Buf out = {0};
    int ranks = n_ranks(a);
    buf_printf(&out,
               "Cairn %s ended this run at step %lld, because a machine computes wrongly.\n\nThe step was computed %d "
               "times. What must have the same bits each time had not:\n",
               CAIRN_VERSION, (long long)step, attempts);
    for (int attempt = 0; attempt < attempts; attempt++) {
        audit_blame(a->history, attempt + 1, ranks, a->blame);
        for (int r = 0; r < ranks; r++) {
            if (!blamed(&a->blame[r])) continue;
            buf_printf(&out, "  attempt %d, ", attempt + 1);
            describe(a, r, &a->history[attempt * ranks + r], &out);
            buf_puts(&out, "\n");
        }
    }
    buf_puts(&out, "\nExcluded from this run:\n");
    for (int r = 0; r < ranks; r++)
        if (a->blame[r].excluded)
            buf_printf(&out, "  rank %d: host %s, local rank %lld (%s)\n", r, a->hosts[r].host,
                       (long long)a->hosts[r].local_rank, a->hosts[r].machine);
    buf_puts(&out, "\nTake the machine out of service, and test its memory and processors or its GPU. " EXCLUDED_LINES
                   " beside this file has\nthe same as JSON, and earlier differences. The same command is refused "
                   "on the excluded places and resumes on\nothers. Remove this file when they were repaired. "
                   "docs/reproducibility.md explains more.\n");
    return file_write_text(a->run->c->output_dir, EXCLUDED_REPORT, &out);
}

static bool excluded(const AuditBlame *b) { return b->excluded; }

/* "rank 1 on node2 and rank 3 on node4": those of which it is true. The caller frees. */
static char *name_ranks(const Audit *a, bool (*which)(const AuditBlame *b))
{
    Buf out = {0};
    for (int r = 0; r < n_ranks(a); r++)
        if (which(&a->blame[r])) buf_printf(&out, "%srank %d on %s", out.len ? " and " : "", r, a->hosts[r].host);
    return out.data;
}

static Status exclude(const Audit *a, int64_t step, int attempt)
{
    char *names = name_ranks(a, excluded); /* the report changes `blame` */
    Status status = ranks_all(a->run->ranks, run_first(a->run) ? write_report(a, step, attempt + 1) : OK);
    if (status == OK)
        status = fail(E_PEER, "step %lld: %s computed wrongly %s, and is excluded from this run; %s/%s is the report",
                      (long long)step, names, attempt == 1 ? "twice" : "in each attempt", a->run->c->output_dir,
                      EXCLUDED_REPORT);
    free(names);
    return status;
}

/* Where memory is damaged, other gradients follow from it. A bit that changes once is no sign of a wrong machine, so
   nobody is excluded. */
static void forget_others(Audit *a)
{
    for (int r = 0; r < n_ranks(a); r++)
        a->blame[r] = (AuditBlame){.changed = a->blame[r].changed, .apart = a->blame[r].apart};
}

static Status end_damaged(const Audit *a, int64_t step, bool changed)
{
    const char *dir = a->run->c->output_dir;
    char *who = name_ranks(a, damaged);
    int64_t from = changed ? step - 1 : a->same + 1;
    Status status = ranks_all(a->run->ranks, run_first(a->run) ? suspects_damaged(dir, from, step) : OK);
    if (status == OK)
        status =
            fail(E_DIFFERS,
                 "step %lld: %s of %s %s. States of step %lld or later in %s may be damaged too and are set aside; "
                 "the same command resumes from the state before them",
                 (long long)step, changed ? "the memory" : "the weights", who,
                 changed ? "changed since the last update" : "are not those of the other ranks", (long long)from, dir);
    free(who);
    return status;
}

Status audit_judge(Audit *a, int64_t step, int attempt, const AuditFinding *mine, bool *again)
{
    *again = false;
    if (!a) return OK;
    size_t ranks = (size_t)n_ranks(a);
    AuditFinding own = *mine, *all = a->history + (size_t)attempt * ranks;
    own.part = grid_first_stage(&a->run->session.plan.input.place->grid, ranks_rank(a->run->ranks));
    if (own.recomputed.rows > 0) name_recomputed(a, &own);
    if (own.changed.rows > 0) name_changed(a, &own);
    TRY(ranks_allgather(a->run->ranks, &own, sizeof own, all));
    TRY(compare_sent(a, all));
    judge_vectors(a, all);
    audit_blame(a->history, attempt + 1, (int)ranks, a->blame);
    a->steps += attempt == 0;
    a->twice += attempt == 0 && mine->partner >= 0;
    bool exclusion = false, changed = false, apart = false;
    for (size_t r = 0; r < ranks; r++) {
        *again |= blamed(&a->blame[r]);
        exclusion |= a->blame[r].excluded;
        changed |= a->blame[r].changed;
        apart |= a->blame[r].apart;
    }
    if (!apart && mine->partner >= 0) a->same = step - 1;
    if (!*again) return OK;
    a->differences++;
    if (changed || apart) forget_others(a);
    TRY(ranks_all(a->run->ranks, run_first(a->run) ? record(a, step, attempt) : OK));
    if (changed || apart) return end_damaged(a, step, !apart);
    return exclusion ? exclude(a, step, attempt) : OK;
}
