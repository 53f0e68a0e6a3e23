/* For ports: the name of a driver's buffer, which no program has the contents of. Licence: MIT OR Apache-2.0. */

#ifndef _COMPAT_SYS_BUF_H
#define _COMPAT_SYS_BUF_H

#include <sys/types.h>

struct buf;

#endif
