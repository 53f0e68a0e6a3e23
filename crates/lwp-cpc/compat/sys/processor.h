/* For ports: processors, after Solaris' <sys/processor.h>. Licence: MIT OR Apache-2.0. */

#ifndef _COMPAT_SYS_PROCESSOR_H
#define _COMPAT_SYS_PROCESSOR_H

#include <errno.h>
#include <libcpc.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* States of a processor. Linux has the first two. */
#define P_OFFLINE  1
#define P_ONLINE   2
#define P_STATUS   3
#define P_FAULTED  4
#define P_POWEROFF 5
#define P_NOINTR   6
#define P_SPARE    7

/* For sysconf(): a number that no processor's is greater than. */
#ifndef _SC_CPUID_MAX
#define _SC_CPUID_MAX _SC_NPROCESSORS_CONF
#endif

#define PBIND_NONE  (-1)
#define PBIND_QUERY (-2)

/* <sys/wait.h> has P_PID; an LWP is a thread by its kernel number. */
#define P_LWPID ((idtype_t)8)
#define P_MYID  (-1)

#define _COMPAT_WORDS (4096 / 8 / (int)sizeof(unsigned long)) /* as many processors as there can be */
#define _COMPAT_BITS  (8 * (int)sizeof(unsigned long))

/* The only processor of the calling thread, or of thread or process `id`; PBIND_NONE if it has more. */
static inline processorid_t _compat_bound(int id)
{
    unsigned long mask[_COMPAT_WORDS] = {0};
    processorid_t found = PBIND_NONE;
    int i;
    if (syscall(SYS_sched_getaffinity, id, sizeof mask, mask) < 0)
        return PBIND_QUERY;
    for (i = 0; i < _COMPAT_WORDS * _COMPAT_BITS; i++)
        if (mask[i / _COMPAT_BITS] >> i % _COMPAT_BITS & 1) {
            if (found != PBIND_NONE)
                return PBIND_NONE;
            found = i;
        }
    return found;
}

/* Of a process only the first thread is bound. */
static inline int processor_bind(idtype_t type, id_t who, processorid_t id, processorid_t *before)
{
    unsigned long mask[_COMPAT_WORDS] = {0};
    int target = (int)who == P_MYID ? 0 : (int)who, i;
    processorid_t old = _compat_bound(target);
    if (type != P_LWPID && type != P_PID) {
        errno = EINVAL;
        return -1;
    }
    if (old == PBIND_QUERY)
        return -1;
    if (before != NULL)
        *before = old;
    if (id == PBIND_QUERY)
        return 0;
    if (id < PBIND_NONE || id >= _COMPAT_WORDS * _COMPAT_BITS) {
        errno = EINVAL;
        return -1;
    }
    for (i = 0; i < _COMPAT_WORDS; i++)
        mask[i] = id == PBIND_NONE ? ~0ul : 0;
    if (id != PBIND_NONE)
        mask[id / _COMPAT_BITS] = 1ul << id % _COMPAT_BITS;
    return syscall(SYS_sched_setaffinity, target, sizeof mask, mask) < 0 ? -1 : 0;
}

/* What state processor `id` is in. Changing it is the administrator's business here: EPERM. */
static inline int p_online(processorid_t id, int flag)
{
    char path[64], state = '1';
    FILE *file;
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d", (int)id);
    if (id < 0 || access(path, F_OK) != 0) {
        errno = EINVAL;
        return -1;
    }
    if (flag != P_STATUS) {
        errno = EPERM;
        return -1;
    }
    /* A processor without this file cannot be taken offline. */
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/online", (int)id);
    file = fopen(path, "r");
    if (file != NULL) {
        int c = fgetc(file);
        state = c == EOF ? '1' : (char)c;
        fclose(file);
    }
    return state == '0' ? P_OFFLINE : P_ONLINE;
}

#endif
