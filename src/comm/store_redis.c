/* A store in a Redis server, by hiredis. Names are kept apart by a hash of job and token; values go after a day. The
   server's password, where it has one, is in REDISCLI_AUTH, as for redis-cli. */
#include <hiredis/hiredis.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "comm/store_internal.h"

#define ANSWER_S  10 /* for one answer */
#define KEEP_TEXT "86400"

typedef struct {
    redisContext *redis;
    char *at, *prefix;
} RedisStore;

static Status lost(RedisStore *r, const char *what)
{
    Status status = fail(E_PEER, "%s: the Redis server at %s: %s", what, r->at,
                         r->redis ? r->redis->errstr : "the connection is lost");
    if (r->redis) redisFree(r->redis);
    r->redis = NULL;
    return status;
}

/* An answer that is no error; the caller frees it. */
static Status ask(RedisStore *r, int n, const char **words, const size_t *lengths, redisReply **reply)
{
    *reply = NULL;
    if (!r->redis) return lost(r, words[0]);
    *reply = redisCommandArgv(r->redis, n, words, lengths);
    if (!*reply) return lost(r, words[0]);
    if ((*reply)->type != REDIS_REPLY_ERROR) return OK;
    Status status = fail(E_USAGE, "%s: the Redis server at %s says: %s", words[0], r->at, (*reply)->str);
    freeReplyObject(*reply);
    *reply = NULL;
    return status;
}

static Status redis_set(void *self, const char *name, const void *data, size_t size)
{
    RedisStore *r = self;
    redisReply *reply;
    char *key = mem_printf("%s%s", r->prefix, name);
    const char *words[] = {"SET", key, size ? data : "", "EX", KEEP_TEXT};
    const size_t lengths[] = {3, strlen(key), size, 2, strlen(KEEP_TEXT)};
    Status status = ask(r, 5, words, lengths, &reply);
    if (reply) freeReplyObject(reply);
    free(key);
    return status;
}

static Status get_now(RedisStore *r, const char *key, void **data, size_t *size)
{
    redisReply *reply;
    const char *words[] = {"GET", key};
    const size_t lengths[] = {3, strlen(key)};
    TRY(ask(r, 2, words, lengths, &reply));
    if (reply->type == REDIS_REPLY_STRING && reply->len <= STORE_MAX_VALUE) {
        *size = reply->len;
        *data = mem_alloc(*size + 1);
        memcpy(*data, reply->str, *size);
    }
    freeReplyObject(reply);
    return OK;
}

static Status redis_get(void *self, const char *name, double wait_s, void **data, size_t *size)
{
    RedisStore *r = self;
    Status status = OK;
    char *key = mem_printf("%s%s", r->prefix, name);
    double end = clock_monotonic() + wait_s, pause = 0.002;
    *data = NULL;
    for (;;) {
        TRY_DONE(get_now(r, key, data, size));
        if (*data || clock_monotonic() >= end) break;
        usleep((useconds_t)(pause * 1e6));
        if (pause < 0.05) pause *= 1.5;
    }
done:
    free(key);
    return status;
}

static void redis_close(void *self)
{
    RedisStore *r = self;
    if (r->redis) redisFree(r->redis);
    free(r->at);
    free(r->prefix);
    free(r);
}

static const StoreKind redis_kind = {.name = "redis", .set = redis_set, .get = redis_get, .close = redis_close};

static Status authenticate(RedisStore *r)
{
    const char *password = getenv("REDISCLI_AUTH");
    redisReply *reply;
    const char *words[] = {"AUTH", password};
    if (!password || !*password) return OK;
    const size_t lengths[] = {4, strlen(password)};
    TRY(ask(r, 2, words, lengths, &reply));
    freeReplyObject(reply);
    return OK;
}

/* A server that is started beside the ranks may come a little later than they. */
static Status connect_redis(RedisStore *r, const char *host, int port, double timeout_s,
                            const volatile sig_atomic_t *stop)
{
    const struct timeval try_for = {.tv_sec = 2}, answer = {.tv_sec = ANSWER_S};
    double end = clock_monotonic() + timeout_s;
    for (;;) {
        r->redis = redisConnectWithTimeout(host, port, try_for);
        if (r->redis && !r->redis->err) break;
        if (store_stopped(stop)) return store_fail_stopped();
        if (clock_monotonic() >= end) return lost(r, "connecting");
        if (r->redis) redisFree(r->redis);
        r->redis = NULL;
        usleep(200000);
    }
    redisSetTimeout(r->redis, answer);
    redisEnableKeepAlive(r->redis);
    return authenticate(r);
}

Status store_redis_open(const char *host_and_port, Hash128 job, double timeout_s, const volatile sig_atomic_t *stop,
                        const StoreKind **kind, void **self)
{
    Status status = OK;
    char *host = NULL, hex[33];
    int port = 6379;
    RedisStore *r = mem_alloc(sizeof *r);
    TRY_DONE(store_parse_address(host_and_port, &host, &port));
    if (!*host) {
        status = fail(E_USAGE, "rendezvous 'redis://%s' names no host; expected redis://HOST[:PORT]", host_and_port);
        goto done;
    }
    hash128_format(job, hex);
    r->at = mem_printf("%s port %d", host, port);
    r->prefix = mem_printf("cairn:%s:", hex);
    TRY_DONE(connect_redis(r, host, port, timeout_s, stop));
    *kind = &redis_kind;
    *self = r;
    r = NULL;
done:
    free(host);
    if (r) redis_close(r);
    return status;
}
