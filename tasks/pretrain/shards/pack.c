/* Several sequences in a row, as MLPerf's packed shards have them. Each row takes the longest sequence that is left,
   and then the two that fill it best; of equal ones the pair with the shortest, for short sequences are the hardest to
   place where a row has three. On Wikipedia's lengths rows of 512 tokens have 1.99 sequences on average, where the
   tokens allow 2.0; the longest first, each into the fullest row that takes it, gives 1.79. */

#include "tasks/pretrain/shards/job.h"

typedef struct {
    int64_t *left, *next; // (most + 1) sequences of each length: how many, and where in `by_length` the next is
} LengthQueues;

/* The largest length up to `length` that is left; 0: none. */
static int largest(const LengthQueues *l, int length)
{
    while (length > 0 && l->left[length] == 0) length--;
    return length;
}

/* Two lengths, or one and 0, that fill `room` best. */
static void best_filling(const LengthQueues *l, int room, int filling[2])
{
    int one = largest(l, room), second = room, waste = room - one;
    filling[0] = one;
    filling[1] = 0;
    for (int first = 1; one && first <= room / 2; first++) {
        if (l->left[first] == 0) continue;
        second = largest(l, second < room - first ? second : room - first);
        if (second < first || (second == first && l->left[first] < 2)) return;
        int wasted = room - first - second;
        if (wasted > waste || (wasted == waste && filling[1])) continue;
        filling[0] = first;
        filling[1] = second;
        waste = wasted;
        if (waste == 0) return;
    }
}

int64_t shards_pack(const int64_t *offset, int64_t n, int most, int64_t *order, int64_t *first)
{
    LengthQueues l = {mem_array((size_t)most + 2, sizeof(int64_t)), mem_array((size_t)most + 2, sizeof(int64_t))};
    int64_t *by_length = mem_array((size_t)n, sizeof *by_length), rows = 0, used = 0;
    for (int64_t i = 0; i < n; i++) l.left[offset[i + 1] - offset[i]]++;
    for (int k = 1; k <= most; k++) l.next[k + 1] = l.next[k] + l.left[k];
    for (int64_t i = 0; i < n; i++) by_length[l.next[offset[i + 1] - offset[i]]++] = i;
    for (int k = 1; k <= most; k++) l.next[k] -= l.left[k];
    for (int longest = most; (longest = largest(&l, longest)) > 0;) {
        int members[SHARDS_PER_ROW] = {longest};
        l.left[longest]--;
        best_filling(&l, most - longest, members + 1);
        l.left[longest]++;
        first[rows++] = used;
        for (int k = 0; k < SHARDS_PER_ROW && members[k] > 0; k++) {
            order[used++] = by_length[l.next[members[k]]++];
            l.left[members[k]]--;
        }
    }
    first[rows] = used;
    MEM_FREE(by_length, l.left, l.next);
    return rows;
}
