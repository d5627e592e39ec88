#include "train/ranks/votes.h"

Votes votes_new(int rank, int size)
{
    size_t n = (size_t)size;
    return (Votes){.rank = rank,
                   .size = size,
                   .left = mem_array(n, sizeof(bool)),
                   .all_own_s = mem_array(n, sizeof(double)),
                   .heard = mem_array(n, sizeof(VotesMessage))};
}

void votes_free(Votes *v) { MEM_FREE(v->left, v->all_own_s, v->heard, v->actions); }

static void order(Votes *v, VotesAction what) { MEM_PUSH(v->actions, v->n_actions, v->cap_actions, what); }

VotesMessage votes_message(const Votes *v)
{
    if (v->rank == 0) return (VotesMessage){.came = v->met, .votes = v->decided, .hurry = v->hurry};
    return (VotesMessage){v->came, v->mine | v->signals, v->signals != 0, v->own_s};
}

/* All ranks have come to the meeting. */
static void decide(Votes *v, int64_t met, uint32_t votes)
{
    v->met = met;
    v->decided = votes;
    v->agreed |= votes;
    v->mine = 0;
}

/* Rank 0 has heard something. */
static void count(Votes *v)
{
    uint32_t votes = 0;
    bool hurry = v->hurry;
    int come = 0;
    v->heard[0] = (VotesMessage){v->came, v->mine | v->signals, v->signals != 0, v->own_s};
    for (int r = 0; r < v->size; r++) {
        come += v->heard[r].came > v->met;
        votes |= v->heard[r].votes;
        v->hurry |= v->heard[r].hurry != 0;
    }
    if (come == v->size) {
        for (int r = 0; r < v->size; r++) v->all_own_s[r] = v->heard[r].own_s;
        decide(v, v->met + 1, votes);
    }
    if (come == v->size || v->hurry != hurry) order(v, SEND_DECISION);
}

/* This rank has come, or votes otherwise than before. */
static void vote(Votes *v)
{
    if (v->rank == 0)
        count(v);
    else
        order(v, SEND_VOTE);
}

int votes_missing(const Votes *v)
{
    if (v->came == v->met) return -1;
    if (v->rank > 0)
        return v->left[0] ? 0 : -1; /* others may have left with a decision that is on its way to this one */
    for (int r = 1; r < v->size; r++)
        if (v->left[r] && v->heard[r].came <= v->met) return r;
    return -1;
}

void votes_on(Votes *v, const VotesEvent *e)
{
    switch (e->kind) {
    case VOTES_COME:
        v->came++;
        vote(v);
        break;
    case VOTES_SIGNAL:
        if (e->signal == v->signals) break;
        v->signals = e->signal;
        vote(v);
        break;
    case VOTES_VOTE:
        v->heard[e->rank] = *e->message;
        count(v);
        break;
    case VOTES_DECISION:
        v->hurry = e->message->hurry;
        if (e->message->came <= v->met) break;
        memcpy(v->all_own_s, e->all_own_s, (size_t)v->size * sizeof *v->all_own_s);
        decide(v, e->message->came, e->message->votes);
        break;
    case VOTES_END:
        if (v->ended++ == 0) v->first_ended = e->rank;
        if (v->end == VOTES_GOING) v->end = VOTES_RANK_ENDED;
        break;
    case VOTES_LEFT:
        v->left[e->rank] = true;
        break;
    case VOTES_LOST:
        if (v->end == VOTES_GOING) v->end = VOTES_RANK_LOST;
        break;
    }
    if (v->end == VOTES_GOING && votes_missing(v) >= 0) order(v, REPORT_LEFT);
}
