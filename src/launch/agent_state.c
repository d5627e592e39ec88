#include "launch/agent_state.h"

#include <signal.h>

#include "base/mem.h"
#include "launch/wire.h"

static void act(AgentState *s, AgentActionKind kind, int number, size_t limit)
{
    MEM_PUSH(s->actions, s->n_actions, s->cap_actions, (AgentAction){kind, number, limit});
}

static void signal_ranks(AgentState *s, int number, double now)
{
    if (number == SIGTERM && s->asked) return;
    s->asked = s->asked || number == SIGTERM;
    if (number == SIGSTOP || number == SIGCONT) {
        s->asleep = number == SIGSTOP;
        s->heard = now;
    }
    act(s, AGENT_DO_SIGNAL, number, 0);
}

static void kill_ranks(AgentState *s)
{
    s->killing = true;
    act(s, AGENT_DO_KILL, 0, 0);
}

/* Asks the ranks to save and end. */
static void lose_launcher(AgentState *s, double now)
{
    if (s->lost) return;
    s->lost = true;
    s->lost_at = now;
    if (s->asleep) signal_ranks(s, SIGCONT, now);
    signal_ranks(s, SIGTERM, now);
}

/* Older kernels only count how often the limit was reached, so a kill by this agent never counts. */
static void tell_end(AgentState *s, const AgentEvent *e)
{
    bool memory = e->killed && !s->killing && e->kills != s->kills;
    if (memory) s->kills = e->kills;
    s->alive--;
    act(s, AGENT_DO_TELL, e->child, memory ? e->limit : 0);
}

static void take_time(AgentState *s, double now)
{
    if (now - s->turned > s->silence / 2 && s->turned > 0) s->heard = now; /* this process was suspended */
    s->turned = now;
    s->wake = INFINITY;
    if (!s->asleep && s->silence > 0) {
        if (now >= s->heard + s->silence) lose_launcher(s, now);
        if (!s->lost) s->wake = s->heard + s->silence;
    }
    if (s->lost && now >= s->lost_at + s->grace) kill_ranks(s);
    if (s->lost && !s->killing) s->wake = s->lost_at + s->grace;
    if (s->asleep) return;
    if (now >= s->beat_at) {
        s->beat_at = now + WIRE_BEAT_S;
        act(s, AGENT_DO_BEAT, 0, 0);
    }
    s->wake = fmin(s->wake, s->beat_at);
}

void agent_on(AgentState *s, const AgentEvent *e, double now)
{
    s->wake = now; /* to look what follows from the event */
    switch (e->kind) {
    case AGENT_STARTED:
        s->alive++;
        if (s->asked) act(s, AGENT_DO_SIGNAL, SIGTERM, 0); /* it came before the rank did */
        break;
    case AGENT_AGAIN:
        s->asked = s->killing = false;
        break;
    case AGENT_ENDED:
        tell_end(s, e);
        break;
    case AGENT_HEARD:
        s->heard = now;
        break;
    case AGENT_GONE:
        lose_launcher(s, now);
        break;
    case AGENT_SIGNAL:
        signal_ranks(s, e->number, now);
        break;
    case AGENT_KILL:
        kill_ranks(s);
        break;
    case AGENT_TIME:
        take_time(s, now);
        break;
    }
}

bool agent_is_done(const AgentState *s) { return s->lost && s->alive == 0; }
