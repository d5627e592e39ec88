/* The shared memory of the running block: arrays one after the other with guards between them. */
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

constexpr size_t shared_limit = 227 << 10; /* per block, on the largest */
size_t shared_most();                      /* of the device, at most that */

void shared_begin(size_t dynamic); /* a new block without arrays */
std::string shared_end();          /* "", or the array that was overrun */
uint64_t shared_block();           /* counts blocks; never 0 in one */

/* What products of tensor cores see: bytes as they were when the block passed the last barrier for which all its
   threads had published. */
void shared_publish(int thread);
void shared_barrier(int threads); /* the block, of so many, passes one */
bool shared_is_published(const void *p, size_t bytes);

/* A place as the hardware counts it, from the beginning of the block's shared memory. */
size_t shared_offset(const void *p);
const void *shared_at(size_t offset);
