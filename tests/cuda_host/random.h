/* Random orders of the host executor. */
#pragma once

#include <cstdint>
#include <cstdlib>

constexpr uint64_t random_step = UINT64_C(0x9e3779b97f4a7c15);

/* splitmix64's last step; the state advances by random_step. */
inline uint64_t random_mix(uint64_t x)
{
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

/* The number in an environment variable, or 1. */
inline uint64_t random_seed(const char *variable)
{
    const char *set = getenv(variable);
    return set && *set ? strtoull(set, nullptr, 0) : 1;
}
