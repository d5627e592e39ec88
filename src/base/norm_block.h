/* Norms are sums over blocks of so many elements, counted from a tensor's start (docs/contracts.md 5): backends add
   them, ranks cut the parameters between them. */
#ifndef CAIRN_BASE_NORM_BLOCK_H
#define CAIRN_BASE_NORM_BLOCK_H

#define NORM_BLOCK 1024

#endif
