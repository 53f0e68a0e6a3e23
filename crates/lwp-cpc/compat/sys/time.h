/* For ports: Linux' own <sys/time.h>, with gethrtime() as Solaris has it there. Licence: MIT OR Apache-2.0. */

#ifndef _COMPAT_SYS_TIME_H
#define _COMPAT_SYS_TIME_H

#pragma GCC system_header
#include_next <sys/time.h>
#include <gethrtime.h>

#endif
