/* For ports: processors, after Solaris' <sys/processor.h>. Licence: MIT OR Apache-2.0. */

#ifndef _COMPAT_SYS_PROCESSOR_H
#define _COMPAT_SYS_PROCESSOR_H

#include <libcpc.h>

#define P_OFFLINE 1
#define P_ONLINE  2
#define P_STATUS  3
#define PBIND_NONE (-1)

#endif
