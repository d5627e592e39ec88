/* What hdf5_file.c and hdf5_write.c share: the lock around the library, and its messages. */
#ifndef CAIRN_DATA_HDF5_LIBRARY_H
#define CAIRN_DATA_HDF5_LIBRARY_H

#include <stddef.h>

/* Every call of the library is made between these two. The first call initialises it. */
void hdf5_lock(void);
void hdf5_unlock(void);
/* What the library says of its last error; valid until hdf5_unlock. */
const char *hdf5_says(void);

#endif
