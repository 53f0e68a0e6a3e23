/* For ports: the system's names, after Solaris' <sys/systeminfo.h>. Licence: MIT OR Apache-2.0. */

#ifndef _COMPAT_SYS_SYSTEMINFO_H
#define _COMPAT_SYS_SYSTEMINFO_H

#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <sys/utsname.h>

#define SI_SYSNAME      1
#define SI_HOSTNAME     2
#define SI_RELEASE      3
#define SI_VERSION      4
#define SI_MACHINE      5
#define SI_ARCHITECTURE 6

/* Copies as much as there is room for and returns how much room the whole takes. <sys/sysinfo.h> of Linux
 * has another function of this name: do not include both. */
static inline int sysinfo(int command, char *buffer, long room)
{
    struct utsname name;
    const char *text;
    size_t length;
    if (uname(&name) != 0)
        return -1;
    switch (command) {
    case SI_SYSNAME: text = name.sysname; break;
    case SI_HOSTNAME: text = name.nodename; break;
    case SI_RELEASE: text = name.release; break;
    case SI_VERSION: text = name.version; break;
    case SI_MACHINE:
    case SI_ARCHITECTURE: text = name.machine; break;
    default: errno = EINVAL; return -1;
    }
    length = strlen(text) + 1;
    if (room > 0) {
        size_t copied = length < (size_t)room ? length : (size_t)room;
        memcpy(buffer, text, copied);
        buffer[copied - 1] = '\0';
    }
    return (int)length;
}

#endif
